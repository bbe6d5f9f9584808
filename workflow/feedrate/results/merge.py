"""`python -m feedrate.results.merge`: the studies' result files put together, one of each kind."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from feedrate.core.errors import fail
from feedrate.results.collect import write_parquet
from feedrate.results.columns import CELLS, CLAIMS, FIT, RUNS, Column, with_factors
from feedrate.results.tables import Row, level_kind, read_rows, write_rows

KINDS = {"runs": RUNS, "cells": CELLS, "claims": CLAIMS, "fit": FIT}


def merge(files: Sequence[Path], columns: Sequence[Column], out: Path) -> None:
    """Write the rows of all `files` to `out` as CSV, with the factors of all of them.

    Raises ValueError, naming the file, where a field is not of its column's kind.
    """
    parts = [read_rows(path, columns) for path in files]
    rows = [row for part in parts for row in part]
    write_rows(out, merged_columns(columns, parts), rows)


def merged_columns(columns: Sequence[Column], parts: Sequence[Sequence[Row]]) -> list[Column]:
    """`columns` with a column for every factor that any part has, in order of appearance."""
    known = {column.name for column in columns}
    names = dict.fromkeys(n for part in parts for row in part[:1] for n in row if n not in known)
    levels = {
        name: [row[name] for part in parts for row in part if row.get(name) is not None]
        for name in names
    }
    return with_factors(tuple(columns), {name: level_kind(levels[name]) for name in names})


def main(arguments: list[str] | None = None) -> int:
    """0 where all files were written; 1, and one sentence, where they were not."""
    parser = argparse.ArgumentParser(prog="feedrate.results.merge", description=__doc__)
    for name in KINDS:
        parser.add_argument(f"--{name}", nargs="+", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of the merged files")
    options = parser.parse_args(arguments)
    try:
        for name, columns in KINDS.items():
            files = getattr(options, name)
            merge(files, columns, options.out / files[0].name)
        rows = [read_rows(path, RUNS) for path in options.runs]
        write_parquet(
            options.out / options.runs[0].with_suffix(".parquet").name,
            merged_columns(RUNS, rows),
            [row for part in rows for row in part],
        )
    except (OSError, ValueError) as error:
        return fail(parser.prog, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
