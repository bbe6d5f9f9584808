"""Result files as CSV: rows in and out, typed by their columns."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from feedrate.config.base import Level, level_text
from feedrate.config.load import parse_level
from feedrate.files import write_text
from feedrate.results.columns import Column, Kind

Row = dict[str, Any]


def write_rows(path: Path, columns: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as CSV, atomically; None is an empty field, a flag is true or false."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([column.name for column in columns])
    for row in rows:
        values = (row.get(column.name) for column in columns)
        writer.writerow(["" if value is None else level_text(value) for value in values])
    write_text(path, stream.getvalue())


def read_rows(path: Path, columns: Sequence[Column]) -> list[Row]:
    """Read what `write_rows` wrote; a column that is not in `columns` is a factor's level.

    Raises ValueError, naming the file, where a field is not of its column's kind, or has none.
    """
    kinds: dict[str, Kind] = {column.name: column.kind for column in columns}
    with path.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        try:
            return [_typed(row, kinds) for row in reader]
        except (ValueError, csv.Error) as error:
            raise ValueError(f"{path}, line {reader.line_num}: {error}") from None


def level_kind(levels: Iterable[Level]) -> Kind:
    """The kind of a factor's column: that of its levels, or text where they differ."""
    types = {type(level) for level in levels}
    if types == {bool}:
        return "flag"
    if types == {int}:
        return "integer"
    return "number" if types and types <= {int, float} else "text"


def _typed(row: Mapping[Any, Any], kinds: Mapping[str, Kind]) -> Row:
    if None in row:  # so DictReader calls what is beyond the header
        raise ValueError("more fields than columns")
    return {name: _value(text or "", kinds.get(name)) for name, text in row.items()}


def _value(text: str, kind: Kind | None) -> Any:
    if text == "":
        return "" if kind == "text" else None
    if kind is None:
        return parse_level(text)
    if kind == "integer":
        return int(text)
    if kind == "number":
        return float(text)
    return text == "true" if kind == "flag" else text
