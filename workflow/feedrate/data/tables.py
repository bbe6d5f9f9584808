"""Tables of rows: a user's own (CSV, TSV, JSON lines or Parquet), and the suite's as Parquet.
Planning checks the files and columns that the configuration names, so pyarrow is imported late."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from feedrate.config.workflow import OWN_COLUMNS
from feedrate.core.errors import first_line
from feedrate.core.files import atomic_path
from feedrate.data.manifest import DataError

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = ("caption", "contest_number", "caption_choices", "label")
"""The columns of jmhessel/newyorker_caption_contest that are read, besides the image. The model
trains on `caption`; `label` is the letter of the right one of `caption_choices`."""

EXAMPLE_COLUMNS = ("image_0", "image_1", "caption_0", "caption_1")
"""Columns that a copy of Winoground must have."""

TOO_LONG = "\0further fields"
"""Key under which a CSV or TSV row holds the fields for which the header has no name."""

_SPLITS = {"training": "train", "valid": "validation", "val": "validation", "dev": "validation"}
_SPLITS |= {"testing": "test"} | {name: name for name in ("train", "validation", "test")}


class Table(NamedTuple):
    """A table's columns and its rows, in order; CSV and TSV values are text."""

    columns: list[str]
    rows: list[dict[str, Any]]


def read_table(path: Path, *, only_columns: bool = False) -> Table:
    """Read a table in the format of its name; `only_columns`: no rows. Raises DataError."""
    readers = {".csv": _delimited, ".tsv": _delimited, ".jsonl": _lines, ".parquet": _parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path}: a table's name ends in one of {', '.join(readers)}")
    try:
        table = reader(path, only_columns)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text (byte {error.start + 1})") from None
    except csv.Error as error:
        raise DataError(f"{path}: {error}") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or first_line(error)}") from None
    if not table.columns:
        raise DataError(f"{path}: the table is empty")
    return table


def _delimited(path: Path, only_columns: bool) -> Table:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream, delimiter=delimiter, restkey=TOO_LONG)
        return Table(list(reader.fieldnames or []), [] if only_columns else list(reader))


def _lines(path: Path, only_columns: bool) -> Table:
    rows: list[dict[str, Any]] = []
    with path.open(encoding="utf-8-sig") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            row = None
            with suppress(ValueError, RecursionError):
                row = json.loads(line)
            if not isinstance(row, dict):
                raise DataError(f"{path}, line {number}: not a JSON object")
            rows.append(row)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    return Table(columns, [] if only_columns else rows)


def _parquet(path: Path, only_columns: bool) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if only_columns:
            return Table(pq.read_schema(path).names, [])
        table = pq.read_table(path)
        return Table(table.column_names, table.to_pylist())
    except pa.ArrowException as error:
        raise DataError(f"{path}: {first_line(error)}") from None


def plain_text(value: Any) -> str:
    """A value as text: 508 for 508.0, nothing for null, ? for what UTF-8 does not have."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).encode("utf-8", "replace").decode("utf-8")


def split_named(text: str) -> str | None:
    """The split that a word in any case names; None if it names none."""
    return _SPLITS.get(text.strip().lower())


def example_tables(path: Path) -> list[Path]:
    """The Parquet files of a copy of Winoground: `path` itself, or all in it. Raises DataError."""
    tables = [path] if path.is_file() else sorted(path.rglob("*.parquet"))
    if not tables:
        raise DataError(f"{path}: there is no Parquet file")
    for table in tables:
        columns = read_table(table, only_columns=True).columns
        if missing := [name for name in EXAMPLE_COLUMNS if name not in columns]:
            lacks, has = ", ".join(missing), ", ".join(columns)
            raise DataError(f"{table}: not Winoground's columns: {lacks} missing; it has: {has}")
    return tables


def make_table(rows: Sequence[dict[str, Any]], own: Iterable[str]) -> "pa.Table":
    """Rows as a table: the `own` columns, then SCHEMA's, then others in order of appearance. A
    missing value is null, or an empty list. Text that is a number in every row becomes one."""
    import pyarrow as pa

    columns = {name: pa.array([row.get(name) for row in rows], pa.string()) for name in own}
    others = dict.fromkeys(key for row in rows for key in row if key not in OWN_COLUMNS)
    for name in dict.fromkeys((*SCHEMA, *others)):
        values = [row.get(name) for row in rows]
        if name == "caption_choices":
            lists = [v if isinstance(v, list | tuple) else [v] if v else [] for v in values]
            texts = [[plain_text(value) for value in choices] for choices in lists]
            columns[name] = pa.array(texts, pa.list_(pa.string()))
        else:
            columns[name] = _column(values, is_text=name in ("caption", "label"))
    return pa.table(columns)


def _column(values: list[Any], *, is_text: bool) -> "pa.Array":
    """Values as int64, else as float64, else as text, where empty text is null; or as text."""
    import pyarrow as pa

    if not is_text:
        values = [None if isinstance(v, str) and not v.strip() else v for v in values]
    texts = [None if v is None else plain_text(v) for v in values]
    for number, kind in () if is_text else ((int, pa.int64()), (float, pa.float64())):
        try:
            return pa.array([None if t is None else number(t) for t in texts], kind)
        except (ValueError, OverflowError, pa.ArrowException):
            continue
    return pa.array(texts, pa.string())


def write_table(path: Path, table: "pa.Table") -> None:
    """Write a Parquet file, atomically. Raises OSError on a full disk."""
    import pyarrow.parquet as pq

    stream = io.BytesIO()  # Arrow's own writer would raise another error on a full disk
    pq.write_table(table, stream)
    with atomic_path(path) as temporary:
        temporary.write_bytes(stream.getvalue())
