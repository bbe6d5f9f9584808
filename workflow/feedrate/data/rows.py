"""Rows as a Parquet table: the schema of jmhessel/newyorker_caption_contest, and columns beyond."""

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from feedrate.config.values import Strict
from feedrate.core.files import atomic_path, digest_text
from feedrate.data.manifest import SPLITS, DataError, SplitCount

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


# Reading a user's table: CSV, TSV, JSON lines or Parquet, by the ending of its name.

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


# The template of an image's path: `cartoons/{contest}.jpg`, a column's name in braces.

TABLE = "table"
"""`{table}` stands for the name of the row's table without its ending, unless a column has it."""

_BRACES = re.compile(r"\{([^{}]*)\}")


def names(template: str) -> list[str]:
    """The columns that a template asks for, each once."""
    return list(dict.fromkeys(_BRACES.findall(template)))


def fill(template: str, row: Mapping[str, Any], table: str) -> str:
    """The template with the row's values in place of the braces; values are never templates."""
    values = {TABLE: table, **row}
    return _BRACES.sub(lambda match: plain_text(values.get(match[1])), template)


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
