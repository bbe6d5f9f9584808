"""A user's own tables: CSV, TSV, JSON lines or Parquet, by the ending of the name.

Planning checks the files and columns that the configuration names, so this imports pyarrow late.
"""

import csv
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from feedrate.config.errors import Findings
from feedrate.config.values import Strict
from feedrate.config.workflow import Folder, LocalExamples
from feedrate.data.manifest import DataError

TOO_LONG = "\0further fields"
"""Key under which a row holds the fields that the header has no name for."""

TABLE = "table"
"""In the template of an image's path, `{table}` is the name of the row's table without its ending,
unless a column has this name."""

OWN = ("sample_id", "split", "image", "origin")
"""Columns that the suite sets itself."""

EXAMPLE_COLUMNS = ("image_0", "image_1", "caption_0", "caption_1")
"""The columns that a copy of Winoground must have."""

_BRACES = re.compile(r"\{([^{}]*)\}")


class Table(Strict, frozen=True, kw_only=True):
    """A table's columns and its rows, in order; CSV and TSV values are text."""

    columns: list[str]
    rows: list[dict[str, Any]]


def read_table(path: Path, wanted: Collection[str] | None = None) -> Table:
    """Read one table; with `wanted`, no rows, and no more than it takes to find these columns.

    Raises DataError, naming the file, if it cannot be read as a table.
    """
    readers = {".csv": _delimited, ".tsv": _delimited, ".jsonl": _lines, ".parquet": _parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path}: a table's name ends in one of {', '.join(readers)}")
    try:
        return reader(path, wanted)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text (byte {error.start + 1})") from None
    except csv.Error as error:
        raise DataError(f"{path}: {error}") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or first_line(error)}") from None


def _delimited(path: Path, wanted: Collection[str] | None) -> Table:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream, delimiter=delimiter, restkey=TOO_LONG)
        columns = list(reader.fieldnames or [])
        if not columns:
            raise DataError(f"{path}: the table is empty")
        return Table(columns=columns, rows=list(reader) if wanted is None else [])


def _lines(path: Path, wanted: Collection[str] | None) -> Table:
    rows: list[dict[str, Any]] = []
    columns: dict[str, None] = {}
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
            columns |= dict.fromkeys(row)
            if wanted is None:
                rows.append(row)
            elif columns.keys() >= set(wanted):
                break
    if not columns:
        raise DataError(f"{path}: the table is empty")
    return Table(columns=list(columns), rows=rows)


def _parquet(path: Path, wanted: Collection[str] | None) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if wanted is not None:
            return Table(columns=list(pq.read_schema(path).names), rows=[])
        table = pq.read_table(path)
        return Table(columns=list(table.column_names), rows=table.to_pylist())
    except pa.ArrowException as error:
        raise DataError(f"{path}: {first_line(error)}") from None


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


def names(template: str) -> list[str]:
    """The columns that the template of an image's path, `cartoons/{contest}.jpg`, asks for."""
    return list(dict.fromkeys(_BRACES.findall(template)))


def fill(template: str, row: Mapping[str, Any], table: str) -> str:
    """The template with the row's values instead of the braces; values are never templates."""
    values = {TABLE: table, **row}
    return _BRACES.sub(lambda match: plain_text(values.get(match[1])), template)


def find_tables(found: Findings, key: str, settings: Folder) -> list[Path]:
    """The table files of a folder, by name; adds errors of the settings to `found`."""
    root, pattern = Path(settings.path).resolve(), settings.tables
    if "caption" not in settings.columns:
        found.say(f"{key}.columns.caption", "missing, but required")
    for own in settings.columns.keys() & set(OWN):
        found.say(f"{key}.columns.{own}", "the suite makes this column itself")
    if not root.is_dir():
        found.say(f"{key}.path", f"there is no folder {settings.path!r}")
        return []
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        found.say(f"{key}.tables", f"{pattern!r} is not allowed; it must stay inside path")
        return []
    try:
        tables = sorted(path for path in root.glob(pattern) if path.is_file())
    except (ValueError, IndexError):
        found.say(f"{key}.tables", f"{pattern!r} is not a pattern of file names")
        return []
    if not tables:
        found.say(f"{key}.tables", f"no file in {root} matches {pattern!r}")
    return tables


def check_columns(
    found: Findings, key: str, settings: Folder, path: Path, columns: Collection[str]
) -> None:
    """Every column that the settings name must be in the table `path`."""
    shown = path.relative_to(Path(settings.path).resolve()).as_posix()
    for place, column in _columns_by_key(settings).items():
        if column not in columns:
            listed = ", ".join(map(str, columns))
            found.say(f"{key}.{place}", f"{shown} has no column {column!r}; it has: {listed}")


def check_folder(found: Findings, key: str, settings: Folder) -> None:
    """Every table of a folder can be read and has the columns that the settings name."""
    wanted = set(_columns_by_key(settings).values())
    for path in find_tables(found, key, settings):
        try:
            check_columns(found, key, settings, path, read_table(path, wanted).columns)
        except DataError as error:
            found.say(f"{key}.tables", str(error))


def _columns_by_key(settings: Folder) -> dict[str, str]:
    """The columns of the user's that settings name, by the settings' keys."""
    named = {f"columns.{ours}": theirs for ours, theirs in settings.columns.items()}
    named |= {f"image ({{{name}}})": name for name in names(settings.image) if name != TABLE}
    return named | ({} if settings.split is None else {"split": settings.split})


def example_tables(path: Path) -> list[Path]:
    """The table of Winoground that `path` is, or those of the folder: Parquet if it has any."""
    if path.is_file():
        return [path]
    endings = ("parquet", "jsonl")
    return next((found for end in endings if (found := sorted(path.rglob(f"*.{end}")))), [])


def check_examples(found: Findings, key: str, settings: LocalExamples) -> list[Path]:
    """The tables of a copy of Winoground; adds an error to `found` if they cannot be used."""
    path = Path(settings.path)
    tables = example_tables(path)
    if not path.exists():
        found.say(f"{key}.path", f"there is no {settings.path!r}")
    elif not tables:
        found.say(
            f"{key}.path",
            f"{settings.path!r} has no *.parquet or *.jsonl file (images.zip of the hub's first "
            "layout must be unpacked into the folder of examples.jsonl)",
        )
    for table in tables:
        try:
            check_example_columns(table)
        except DataError as error:
            found.say(f"{key}.path", str(error))
    return tables


def check_example_columns(path: Path) -> None:
    """Raise DataError if a table lacks one of Winoground's columns."""
    columns = read_table(path, EXAMPLE_COLUMNS).columns
    if missing := [name for name in EXAMPLE_COLUMNS if name not in columns]:
        raise DataError(
            f"{path}: not Winoground's columns: {', '.join(missing)} missing; it has: "
            f"{', '.join(map(str, columns))}"
        )
