"""Reading a user's table: CSV, TSV, JSON lines or Parquet, by the ending of its name."""

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from feedrate.config.base import Strict
from feedrate.data.manifest import DataError
from feedrate.data.rows import first_line

TOO_LONG = "\0further fields"
"""Key under which a row holds the fields that the header has no name for."""


class Table(Strict, frozen=True, kw_only=True):
    """A table's columns and its rows, in order; CSV and TSV values are text."""

    columns: list[str]
    rows: list[dict[str, Any]]


def read_table(path: Path) -> Table:
    """Read one table. Raises DataError, naming the file, where it cannot be read as one."""
    readers = {".csv": _delimited, ".tsv": _delimited, ".jsonl": _lines, ".parquet": _parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path}: a table's name ends in one of {', '.join(readers)}")
    try:
        return reader(path)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text (byte {error.start + 1})") from None
    except (csv.Error, pa.ArrowException) as error:
        raise DataError(f"{path}: {first_line(error)}") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or first_line(error)}") from None


def _delimited(path: Path) -> Table:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream, delimiter=delimiter, restkey=TOO_LONG)
        columns = list(reader.fieldnames or [])
        if not columns:
            raise DataError(f"{path}: the table is empty")
        return Table(columns=columns, rows=list(reader))


def _lines(path: Path) -> Table:
    rows: list[dict[str, Any]] = []
    with path.open(encoding="utf-8-sig") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise DataError(f"{path}, line {number}: not a JSON object")
            rows.append(row)
    if not rows:
        raise DataError(f"{path}: the table is empty")
    return Table(columns=list(dict.fromkeys(key for row in rows for key in row)), rows=rows)


def _parquet(path: Path) -> Table:
    table = pq.read_table(path)
    return Table(columns=list(table.column_names), rows=table.to_pylist())
