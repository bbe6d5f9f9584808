"""Rows as a Parquet table: the schema of jmhessel/newyorker_caption_contest, and columns beyond."""

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from feedrate.core.files import atomic_path, digest_text
from feedrate.data.manifest import SPLITS, DataError, SplitCount
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
"""Columns of every dataset but the image, in order; `caption` is what the model is trained on."""


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


# Which rows train, which validate and which test: named by a column, or shared out by group.

_NAMES = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing"),
}


def split_named(text: str) -> str | None:
    """The split that a word means, in any case, or None."""
    word = text.strip().lower()
    return next((split for split, words in _NAMES.items() if word in words), None)


def share_out(
    groups: Iterable[str], validation_share: float, test_share: float, seed: int
) -> dict[str, str]:
    """The split of every group (a contest, or an image), so that no group is in two splits.

    The groups are ordered by a digest of the seed and their name: the result does not depend on
    their order. A split with a share above 0 gets at least one group while training keeps one.
    """
    order = sorted(set(groups), key=lambda group: digest_text(f"{seed}/{group}"))
    splits = dict.fromkeys(order, "train")
    count, position = len(order), min(1, len(order))  # the first group trains
    for split, share in (("validation", validation_share), ("test", test_share)):
        wanted = max(1, round(share * count)) if share > 0 else 0
        for group in order[position : position + wanted]:
            splits[group] = split
        position += wanted
    return splits


def count_splits(samples: Sequence[Mapping[str, Any]]) -> dict[str, SplitCount]:
    """Rows and different images of every split, also of an empty one."""
    return {
        split: SplitCount(
            rows=sum(sample["split"] == split for sample in samples),
            images=len({sample["image"] for sample in samples if sample["split"] == split}),
        )
        for split in SPLITS
    }
