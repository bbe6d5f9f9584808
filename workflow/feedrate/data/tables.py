"""Tables of rows: a user's own (CSV, TSV, JSON lines or Parquet), and the suite's as Parquet.
Planning checks the files and columns that the configuration names, so pyarrow is imported late."""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from feedrate.config.workflow import OWN_COLUMNS
from feedrate.core.errors import first_line
from feedrate.core.files import atomic_path
from feedrate.data.manifest import DataError, Unusable

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = ("caption", "contest_number", "caption_choices", "label")
"""The columns of jmhessel/newyorker_caption_contest that are read, besides the image. The model
trains on `caption`; `label` is the letter of the right one of `caption_choices`."""

EXAMPLE_COLUMNS = ("image_0", "image_1", "caption_0", "caption_1")
"""Columns that a copy of Winoground must have."""

_LIST = re.compile(r"""\[\s*['"].*['"]\s*\]""", re.DOTALL)
"""A list as Python, pandas and JSON write it into a field of text."""

_SPLITS = {
    "train": "train", "training": "train", "test": "test", "testing": "test",
    "validation": "validation", "valid": "validation", "val": "validation", "dev": "validation",
}  # fmt: skip


class Table(NamedTuple):
    """A table's columns and its rows, in order; CSV and TSV values are text."""

    columns: list[str]
    rows: list[dict[str, Any]]


def read_table(path: Path, *, separator: str | None = None, only_columns: bool = False) -> Table:
    """Read a table in the format of its name; `separator`: of CSV and TSV, instead of a comma and a
    tab; `only_columns`: no rows. Raises DataError."""
    delimited = partial(_delimited, separator=separator)
    readers: dict[str, Callable[[Path, bool], Table]]
    readers = {".csv": delimited, ".tsv": delimited, ".jsonl": _lines, ".parquet": _parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path}: a table's name ends in one of {', '.join(readers)}")
    try:
        table = reader(path, only_columns)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text (byte {error.start + 1})") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or first_line(error)}") from None
    if not table.columns:
        raise DataError(f"{path}: the table is empty")
    for name, count in Counter(table.columns).items():
        if name and count > 1:
            raise DataError(f"{path}: several columns have the name {name!r}")
    return table


def _delimited(path: Path, only_columns: bool, separator: str | None) -> Table:
    """CSV, or TSV, in which quotes are text. A line without any value is no row."""
    is_csv = path.suffix.lower() == ".csv"
    separator = separator or ("," if is_csv else "\t")
    rule = f"the key separator is {separator!r}"
    if is_csv:
        rule += "; a field with separators or quotes is in quotes, and its own quotes are doubled"
    columns: list[str] = []
    rows: list[dict[str, Any]] = []
    with path.open(encoding="utf-8-sig", newline="") as stream:
        quoting: Any = csv.QUOTE_MINIMAL if is_csv else csv.QUOTE_NONE
        reader = csv.reader(stream, delimiter=separator, quoting=quoting, strict=True)
        line = 1
        try:
            for fields in reader:
                first, line = line, reader.line_num + 1
                if not any(field.strip() for field in fields):
                    continue
                if not columns:
                    columns = [field.strip() for field in fields]
                    if only_columns:
                        break
                elif len(fields) == len(columns):
                    rows.append(dict(zip(columns, fields, strict=True)))
                else:
                    counts = f"{len(fields)} fields, but {len(columns)} columns"
                    raise DataError(f"{path}, line {first}: {counts} ({rule})")
        except csv.Error as error:
            text = str(error).replace("unexpected end of data", "a quote is not closed")
            raise DataError(f"{path}, line {line}: {text} ({rule})") from None
    return Table(columns, rows)


def _lines(path: Path, only_columns: bool) -> Table:
    rows: list[dict[str, Any]] = []
    with path.open(encoding="utf-8-sig") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            row = None
            with suppress(ValueError, RecursionError):
                row = json.loads(line, object_pairs_hook=_distinct)
            if not isinstance(row, dict):
                raise DataError(f"{path}, line {number}: not a JSON object with distinct keys")
            rows.append(row)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    return Table(columns, [] if only_columns else rows)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any] | None:
    """A JSON object; None if a key occurs twice."""
    row = dict(pairs)
    return row if len(row) == len(pairs) else None


def _parquet(path: Path, only_columns: bool) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        columns = pq.read_schema(path).names
        return Table(columns, [] if only_columns else pq.read_table(path).to_pylist())
    except pa.ArrowException as error:
        raise DataError(f"{path}: {first_line(error)}") from None


def plain_text(value: Any, column: str) -> str:
    """A text or number as text: 508 for 508.0, nothing for null and NaN, ? for what UTF-8 does not
    have. Raises Unusable, which names the column, for anything else."""
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if not isinstance(value, str | Number):
        raise Unusable(f"column {column!r}: a value of type {type(value).__name__}, not text")
    return str(value).encode("utf-8", "replace").decode("utf-8")


def texts(value: Any, column: str) -> list[str]:
    """The texts in a cell: a text, or a list, in which nothing is an empty text. An empty cell has
    none. Raises Unusable, which names the column, for anything else, numbers included."""
    if isinstance(value, list | tuple):
        return [text for cell in value for text in texts(cell, column) or [""]]
    text = plain_text(value, column).strip()
    if text and not isinstance(value, str):
        raise Unusable(f"column {column!r}: a value of type {type(value).__name__}, not text")
    if _LIST.fullmatch(text):
        raise Unusable(f"column {column!r}: a list written as text")
    return [text] if text else []


def split_named(value: Any, column: str) -> str:
    """The split that a word in any case names. Raises Unusable if it names none."""
    text = plain_text(value, column).strip()
    if text.lower() not in _SPLITS:
        raise Unusable(f"the split {text!r} is not train, validation or test")
    return _SPLITS[text.lower()]


def example_tables(path: Path) -> list[Path]:
    """The Parquet files of a copy of Winoground: `path` itself, or all in it. Raises DataError."""
    tables = [path] if path.is_file() else sorted(path.rglob("*.parquet"))
    if not tables:
        raise DataError(f"{path}: there is no Parquet file")
    for table in tables:
        columns = read_table(table, only_columns=True).columns
        lacking = ", ".join(name for name in EXAMPLE_COLUMNS if name not in columns)
        if lacking:
            names = f"{lacking} missing; it has: {', '.join(columns)}"
            raise DataError(f"{table}: not Winoground's columns: {names}")
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
            columns[name] = pa.array([texts(v, name) for v in values], pa.list_(pa.string()))
            continue
        plain = [plain_text(value, name) for value in values]
        filled = [text if text.strip() else None for text in plain]
        is_text = name in ("caption", "label")
        columns[name] = pa.array(filled, pa.string()) if is_text else _numbers(filled)
    return pa.table(columns)


def _numbers(values: list[str | None]) -> "pa.Array":
    """Values as int64, else as float64, else as they are."""
    import pyarrow as pa

    for number, kind in ((int, pa.int64()), (float, pa.float64())):
        with suppress(ValueError, OverflowError, pa.ArrowException):
            numbers = [None if value is None else number(value) for value in values]
            return pa.array(numbers, kind, from_pandas=True)  # NaN is null
    return pa.array(values, pa.string())


def write_table(path: Path, table: "pa.Table") -> None:
    """Write a Parquet file, atomically. Raises OSError on a full disk."""
    import pyarrow.parquet as pq

    stream = io.BytesIO()  # Arrow's own writer would raise another error on a full disk
    pq.write_table(table, stream)
    with atomic_path(path) as temporary:
        temporary.write_bytes(stream.getvalue())
