"""The result files of all studies: merged, in long form for leaderboards, and described for others.

`datapackage.json` follows version 1 of the Data Package specification
(https://specs.frictionlessdata.io), by which the frictionless package and others check the files.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from feedrate.core.files import digest_file, digest_value, write_json
from feedrate.core.paths import DATAPACKAGE, LEADERBOARD_CSV
from feedrate.results.columns import FILES, LEADERBOARD, RUNS, Column, with_factors
from feedrate.results.files import Row, frame_of, read_csv, rows_of, write_parquet, write_result
from feedrate.results.schema import VALUES

METRICS = [c for c in RUNS if c.name in VALUES and c.kind in ("integer", "number")]
"""The measured numbers in a row of results.csv."""
SCHEMA_VERSION = "1.0.0"
"""Version of the result files: the first number rises when a column goes or changes its meaning,
the second when one is added. A digest of all columns follows it, so that no change goes unseen."""
TYPES = {"text": "string", "integer": "integer", "number": "number", "flag": "boolean"}
"""Kinds of columns in the words of Table Schema."""
_CELL = ["study", "device", "cell"]
KEYS = {"results.csv": [*_CELL, "repeat"], "cells.csv": _CELL}
"""Primary keys, where a file has one."""


def merge_results(
    runs: list[Path], cells: list[Path], claims: list[Path], fit: list[Path], out: Path
) -> None:
    """Merge the files of all studies, each kind into a file of its name in the folder `out`, and
    write the long form and the description of all files there."""
    import pandas as pd

    columns: dict[str, Sequence[Column]] = {}
    rows: dict[str, list[Row]] = {}
    kinds = {"results.csv": runs, "cells.csv": cells, "claims.csv": claims, "fit.csv": fit}
    for kind, files in kinds.items():
        name, known = files[0].name, FILES[kind]
        tables = [pd.DataFrame(read_csv(file, known), dtype=object) for file in files]
        table = pd.concat(tables, ignore_index=True)
        factors = table.columns.drop([column.name for column in known], errors="ignore")
        columns[name] = with_factors(known, {one: table[one].dropna() for one in factors})
        rows[name] = rows_of(table)
        write_result(out / name, columns[name], rows[name])
    of_runs, of_fit, board = runs[0].name, fit[0].name, Path(LEADERBOARD_CSV).name
    parquet = (out / of_runs).with_suffix(".parquet")
    write_parquet(parquet, columns[of_runs], frame_of(rows[of_runs], columns[of_runs]))
    write_result(out / board, LEADERBOARD, leaderboard(rows[of_runs], rows[of_fit]))
    described = data_package(out, columns | {board: LEADERBOARD}, parquet.name)
    write_json(out / Path(DATAPACKAGE).name, described)


def leaderboard(runs: Iterable[Row], fit: Iterable[Row]) -> Iterator[Row]:
    """The rows of leaderboard.csv: the numbers of `runs` (of results.csv), then the published rates
    among the rows of fit.csv. Runs that a row shows for another cell are listed there only."""
    for run in runs:
        facts = {
            **{name: run.get(name) for name in ("study", "device", "cell", "repeat", "status")},
            **{name: run.get(name) for name in ("device_model", "started_at", "record")},
            "settings_digest": run.get("spec_digest"),
            "provenance": "measured",
        }
        for metric in () if run.get("measured_as") else METRICS:
            if (value := run.get(metric.name)) is not None:
                yield facts | {"metric": metric.name, "value": value, "unit": metric.unit}
    for row in fit:
        if str(row.get("origin") or "").startswith("published"):
            facts = {name: row.get(name) for name in ("study", "device", "cell")}
            rate = {"metric": "samples_per_s", "value": row["samples_per_s"], "unit": "samples/s"}
            yield {**facts, **rate, "provenance": row["origin"]}


def data_package(
    folder: Path, files: Mapping[str, Sequence[Column]], parquet: str
) -> dict[str, Any]:
    """The description of the CSV `files` in `folder`, by their columns, and of the Parquet file."""
    listed = {n: [list(column) for column in columns] for n, columns in FILES.items()}
    resources = [
        {
            **_resource(folder / name, "csv", "text/csv"),
            "profile": "tabular-data-resource",
            "encoding": "utf-8",
            "schema": {
                "fields": [_field(column) for column in columns],
                "missingValues": [""],
                **({"primaryKey": KEYS[name]} if name in KEYS else {}),
            },
        }
        for name, columns in files.items()
    ]
    parquets = _resource(folder / parquet, "parquet", "application/vnd.apache.parquet")
    # As a file: read as a table, its empty integers would become floats that are no numbers.
    resources.append(parquets | {"type": "file"})
    return {
        "profile": "data-package",
        "name": "feedrate-results",
        "title": "Throughput of training and inference, measured by feedrate",
        "version": f"{SCHEMA_VERSION}+{digest_value(listed)[:8]}",
        "resources": resources,
    }


def _resource(path: Path, kind: str, media: str) -> dict[str, Any]:
    """A file of the package."""
    return {
        "name": path.name.replace(".", "-"),
        "path": path.name,
        "format": kind,
        "mediatype": media,
        "bytes": path.stat().st_size,
        "hash": f"sha256:{digest_file(path)}",
    }


def _field(column: Column) -> dict[str, Any]:
    """A column in the words of Table Schema; `unit` is a property of ours, which it allows."""
    flag = {"trueValues": ["true"], "falseValues": ["false"]}
    return {
        "name": column.name,
        "type": TYPES[column.kind],
        "description": column.description,
        **({"unit": column.unit} if column.unit else {}),
        **(flag if column.kind == "flag" else {}),
    }
