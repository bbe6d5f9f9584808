"""Rows and cells of records, for the tests of this folder."""

from record_builder import collect_settings, write_records

from feedrate.config.plan import Shared
from feedrate.results.collect import cell_rows, run_table
from feedrate.results.columns import RUNS, for_studies
from feedrate.results.files import frame_of
from feedrate.results.files import rows_of as plain

W0, W1, W2 = (f"workers={w}~decode=host" for w in range(3))


def rows_of(tmp_path, records, **changes):
    settings = collect_settings(**changes)
    return plain(run_table(write_records(tmp_path, records), settings)), settings


def cells_of(tmp_path, records, **changes):
    rows, settings = rows_of(tmp_path, records, **changes)
    return {row["cell"]: row for row in cells_from(rows, settings)}


def cells_from(rows, settings):
    return cell_rows(frame_of(rows, for_studies(RUNS, settings.studies)), settings)


def shared(device="cpu"):
    """The cell with two workers, measured as that with one."""
    levels = {"workers": 2, "decode": "host"}
    return Shared(study="loading", device=device, cell=W2, levels=levels, measured_as=W1)
