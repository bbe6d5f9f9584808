"""Sets of results as a campaign leaves them: runs, and the records that describe them."""

from pathlib import Path
from typing import Any

from msgspec import structs

from feedrate.config.values import cell_name
from feedrate.results.comparison import SOFTWARE
from feedrate.results.record import Record, write_records
from feedrate.results.schema import Measurement, Provenance

BEFORE, AFTER = 1, 8
"""Days on which campaigns were run."""
PACKAGES = {"torch": "2.8.0", "numpy": "2.4.6"}


def runs(workers: int, *rates: float | None, day: int = BEFORE, **changes: Any) -> list[dict]:
    """The runs of a cell, one for each rate in samples/s; a run without one is not ok."""
    cell = cell_name({"workers": workers})
    rows = []
    for repeat, rate in enumerate(rates, start=1):
        row = SOFTWARE | {
            "study": "loading",
            "device": "cpu",
            "cell": cell,
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
            "call": f"{day}",
            "name": f"{day:04}{workers:02}{repeat:02}",
        }
        row |= changes
        row["folder"] = f"runs/loading/{row['device']}/{cell}/rep{repeat}-{row['name']}"
        rows.append(row)
    return rows


def write_set(folder: Path, *cells: list[dict]) -> Path:
    """Write the records of the runs of cells into a folder of results, which is returned."""
    rows = [row for cell in cells for row in cell]
    for device in {row["device"] for row in rows}:
        records = []
        for row in (row for row in rows if row["device"] == device):
            rate, names = row["samples_per_s"], Provenance.__struct_fields__
            known = {name: row[name] for name in names if row.get(name) is not None}
            records.append(
                Record(
                    **{n: row[n] for n in ("study", "device", "cell", "repeat", "status", "cause")},
                    levels={},
                    measurement=None if rate is None else measurement(rate),
                    provenance=Provenance(**known),
                )
            )
        write_records(folder / "loading", device, records)
    return folder


def measurement(rate: float) -> Measurement:
    """That of a run with this rate; all else is of no interest."""
    fields = {field.name: 1 for field in structs.fields(Measurement) if field.required}
    return Measurement(**(fields | {"samples_per_s": rate}))
