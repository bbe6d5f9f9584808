"""Rows and cells of records, for the tests of this folder."""

from record_builder import make_plan

from feedrate.config.plan import Shared
from feedrate.results.collect import cell_rows, run_table

W0, W1, W2 = (f"workers={w}~decode=host" for w in range(3))


def rows_of(records, **changes):
    plan = make_plan(**changes)
    return run_table(records, plan), plan


def cells_of(records, **changes):
    rows, plan = rows_of(records, **changes)
    return {row["cell"]: row for row in cells_from(rows, plan)}


def cells_from(rows, plan):
    return cell_rows(rows, plan)


def shared(device="cpu"):
    """The cell with two workers, measured as that with one."""
    levels = {"workers": 2, "decode": "host"}
    return Shared(study="loading", device=device, cell=W2, levels=levels, measured_as=W1)
