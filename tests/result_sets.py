"""Sets of results as a campaign leaves them: results.csv, and the records that it names."""

from pathlib import Path
from typing import Any

from feedrate.config.values import cell_name
from feedrate.core.paths import RUN
from feedrate.results.columns import RUNS, with_factors
from feedrate.results.files import write_csv
from feedrate.results.record import Record, write_records
from feedrate.results.schema import Provenance

COLUMNS = with_factors(RUNS, {"workers": [1]})
BEFORE, AFTER = 1, 8
"""Days on which campaigns were run."""
PACKAGES = {"torch": "2.8.0", "numpy": "2.4.6"}


def runs(workers: int, *rates: float | None, day: int = BEFORE, **changes: Any) -> list[dict]:
    """The runs of a cell, one for each rate in samples/s; a run without one is not ok."""
    cell = cell_name({"workers": workers})
    rows = []
    for repeat, rate in enumerate(rates, start=1):
        row = {
            "study": "loading",
            "device": "cpu",
            "cell": cell,
            "workers": workers,
            "repeat": repeat,
            "status": "failed" if rate is None else "ok",
            "cause": "It broke." if rate is None else "",
            "samples_per_s": rate,
            "device_model": "a cpu",
            "host": "node1",
            "cores_granted": 2,
            "commit": "a" * 40,
            "source_digest": "code 1",
            "data_digest": "data 1",
            "spec_digest": f"spec {workers} {repeat}",
            "started_at": f"2026-11-{day:02}T10:{workers:02}:{repeat:02}+00:00",
        } | changes
        where = {name: row[name] for name in ("study", "device", "cell", "repeat")}
        rows.append({"folder": RUN.format(**where, identity="0a1b2c3d"), **row})
    return rows


def write_set(
    folder: Path, *cells: list[dict], packages: dict[str, str] | None = None, **told: Any
) -> Path:
    """Write the runs of cells as the results in `folder`; with `packages` also their records, with
    what else of `Provenance` is told. Returns the folder."""
    rows = [row for cell in cells for row in cell]
    write_csv(folder / "results.csv", COLUMNS, rows)
    records = [
        Record(
            **{
                name: row[name]
                for name in ("study", "device", "cell", "repeat", "folder", "status")
            },
            levels={"workers": row["workers"]},
            provenance=Provenance(started_at=row["started_at"], packages=packages or {}, **told),
        )
        for row in rows
    ]
    if packages is not None:
        for study, device in {(row["study"], row["device"]) for row in rows}:
            own = [one for one in records if (one.study, one.device) == (study, device)]
            write_records(folder / study, device, own)
    return folder
