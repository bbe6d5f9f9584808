"""Rows as a Parquet table: the schema of jmhessel/newyorker_caption_contest, and other columns."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from feedrate.core.files import atomic_path
from feedrate.data.manifest import DataError
from feedrate.data.tables import OWN, first_line, plain_text

_TEXT, _TEXTS, _NUMBER = pa.string(), pa.list_(pa.string()), pa.int64()

SCHEMA: dict[str, pa.DataType] = {
    "caption": _TEXT,
    "contest_number": _NUMBER,
    "image_location": _TEXT,
    "image_description": _TEXT,
    "image_uncanny_description": _TEXT,
    "entities": _TEXTS,
    "questions": _TEXTS,
    "caption_choices": _TEXTS,
    "from_description": _TEXT,
    "label": _TEXT,
    "n_tokens_label": _NUMBER,
    "instance_id": _TEXT,
}
"""Columns of every dataset, in order, except the image; `caption` is what the model trains on."""

_SPLIT_NAMES = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing"),
}


def make_table(rows: Sequence[dict[str, Any]], own: Iterable[str]) -> pa.Table:
    """Rows as a table: the `own` columns, the schema's, then further ones in order of appearance.

    A missing value is null, or an empty list. Text that is a number in every row becomes one.
    """
    columns = {name: pa.array([row.get(name) for row in rows], _TEXT) for name in own}
    further = [key for row in rows for key in row if key not in SCHEMA and key not in OWN]
    for name, kind in (SCHEMA | dict.fromkeys(further, pa.float64())).items():
        values = [row.get(name) for row in rows]
        if kind == _TEXTS:
            columns[name] = pa.array([_texts(value) for value in values], _TEXTS)
        elif kind == _TEXT:
            texts = [None if value is None else plain_text(value) for value in values]
            columns[name] = pa.array(texts, _TEXT)
        else:
            columns[name] = _numbers(values, kind)
    return pa.table(columns)


def _texts(value: Any) -> list[str]:
    if value is None or value == "":
        return []
    return [plain_text(v) for v in value] if isinstance(value, list | tuple) else [str(value)]


def _numbers(values: list[Any], widest: pa.DataType) -> pa.Array:
    """Values as int64, else as `widest`, else as text; empty text is null."""
    values = [None if isinstance(v, str) and not v.strip() else v for v in values]
    texts = [None if v is None else plain_text(v) for v in values]
    for number, kind in ((int, _NUMBER), (float, widest)):
        try:
            return pa.array([None if t is None else number(t) for t in texts], kind)
        except (ValueError, OverflowError, pa.ArrowException):
            continue
    return pa.array(texts, _TEXT)


def write_table(path: Path, table: pa.Table) -> None:
    """Write a Parquet file, atomically. The bytes are made first: a full disk is an OSError."""
    stream = io.BytesIO()
    pq.write_table(table, stream)
    with atomic_path(path) as temporary:
        temporary.write_bytes(stream.getvalue())


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a Parquet file. Raises DataError if it cannot be read."""
    try:
        return pq.read_table(path).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: cannot be read as Parquet ({first_line(error)})") from None


def split_named(text: str) -> str | None:
    """The split that a word means, in any case, or None."""
    word = text.strip().lower()
    return next((split for split, words in _SPLIT_NAMES.items() if word in words), None)
