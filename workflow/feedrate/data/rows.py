"""Rows as a Parquet table: the schema of jmhessel/newyorker_caption_contest, and columns beyond."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from feedrate.data.manifest import DataError
from feedrate.files import atomic_path

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
"""Columns of every dataset but the image, in order; `caption` is what the model is trained on."""

OWN = ("sample_id", "split", "image", "origin")
"""Columns that the suite sets itself."""


def make_table(rows: Sequence[dict[str, Any]], own: Iterable[str]) -> pa.Table:
    """Rows as a table: the `own` columns, the schema's, then further ones in order of appearance.

    What a row lacks is null, or an empty list. Text that is a number in every row becomes one.
    """
    further = [key for row in rows for key in row if key not in SCHEMA and key not in OWN]
    columns = {name: pa.array([row.get(name) for row in rows], _TEXT) for name in own}
    for name, kind in SCHEMA.items():
        values = [row.get(name) for row in rows]
        if kind == _TEXTS:
            columns[name] = pa.array([_texts(value) for value in values], _TEXTS)
        elif kind == _TEXT:
            columns[name] = pa.array([_text(value) for value in values], _TEXT)
        else:
            columns[name] = _numbers(values, _NUMBER)
    for name in dict.fromkeys(further):
        columns[name] = _numbers([row.get(name) for row in rows], pa.float64())
    return pa.table(columns)


def write_table(path: Path, table: pa.Table) -> None:
    """Write a Parquet file, atomically. The bytes are made first: a full disk is an OSError."""
    stream = io.BytesIO()
    pq.write_table(table, stream)
    with atomic_path(path) as temporary:
        temporary.write_bytes(stream.getvalue())


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a Parquet file. Raises DataError where it is none."""
    try:
        return pq.read_table(path).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: cannot be read as Parquet ({first_line(error)})") from None


def first_line(error: BaseException) -> str:
    """The first line of an error's message, for a sentence."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def plain_text(value: Any) -> str:
    """A value as it is written in a path or a caption: 508 for 508.0, nothing for null.

    Lone surrogates, which JSON allows and UTF-8 does not, become question marks.
    """
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).encode("utf-8", "replace").decode("utf-8")


def _text(value: Any) -> str | None:
    return None if value is None else plain_text(value)


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
