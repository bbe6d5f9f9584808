"""A user's own images and captions: nothing is copied; each file is listed with its checksum.
Planning checks the tables here, so pyarrow is imported late."""

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from feedrate.config.errors import Problems, raise_all
from feedrate.config.workflow import Folder
from feedrate.data.fetch import ListedFiles
from feedrate.data.manifest import DataError, Fetched, LeftOut
from feedrate.data.tables import TOO_LONG, plain_text, read_table, split_named

TABLE = "table"
"""In the template of an image's path, `{table}` is the name of the row's table without its
extension, unless a column has this name."""

_BRACES = re.compile(r"\{([^{}]*)\}")


def fetch(name: str, settings: Folder, _raw: Path) -> Fetched:
    """List the rows and images of a folder; a missing image, or one outside, only leaves its rows
    out. Raises ConfigError for a wrong path or column, DataError for a table."""
    root, key, problems = Path(settings.path).resolve(), f"datasets.{name}", Problems("")
    tables = find_tables(problems, key, settings)
    raise_all(problems)
    files = ListedFiles(root)
    rows: list[dict[str, Any]] = []
    left_out: list[LeftOut] = []
    for path in tables:
        shown = path.relative_to(root).as_posix().encode("utf-8", "replace").decode()
        table = read_table(path)
        check_columns(problems, key, settings, path, table.columns)
        raise_all(problems)
        for number, row in enumerate(table.rows, start=1):
            where = f"{shown}, row {number}"
            mapped = {ours: row.get(theirs) for ours, theirs in settings.columns.items()}
            reason = "more fields than the header has" if TOO_LONG in row else ""
            if settings.split is not None:
                value = plain_text(row.get(settings.split))
                mapped["split"] = split_named(value)
                if mapped["split"] is None:
                    reason = f"its split is {value!r}, not train, validation or test"
            if reason:
                left_out.append(LeftOut(path=where, reason=reason))
            elif image := files.find(fill(settings.image, row, path.stem)):
                rows.append(mapped | {"image": image, "origin": where})
    return Fetched(rows=rows, files=files.found(), left_out=left_out + files.lost(), root=str(root))


def check_folder(problems: Problems, key: str, settings: Folder) -> None:
    """Report the tables that cannot be read and the columns that they lack."""
    for path in find_tables(problems, key, settings):
        try:
            columns = read_table(path, only_columns=True).columns
            check_columns(problems, key, settings, path, columns)
        except DataError as error:
            problems.add(f"{key}.tables", str(error))


def find_tables(problems: Problems, key: str, settings: Folder) -> list[Path]:
    """The table files of a folder, sorted by name; reports errors in the settings."""
    root, pattern = Path(settings.path).resolve(), settings.tables
    tables: list[Path] = []
    if not root.is_dir():
        problems.add(f"{key}.path", f"there is no folder {settings.path!r}")
    elif Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        problems.add(f"{key}.tables", f"{pattern!r} is not allowed; it must stay inside path")
    else:
        with suppress(ValueError, IndexError):  # not a pattern
            tables = sorted(path for path in root.glob(pattern) if path.is_file())
        if not tables:
            problems.add(f"{key}.tables", f"no file in {root} matches {pattern!r}")
    return tables


def check_columns(
    problems: Problems, key: str, settings: Folder, path: Path, columns: Collection[str]
) -> None:
    """Report each column that the settings name and the table `path` lacks."""
    named = {f"columns.{ours}": theirs for ours, theirs in settings.columns.items()}
    named |= {f"image ({{{name}}})": name for name in names(settings.image) if name != TABLE}
    if settings.split is not None:
        named["split"] = settings.split
    shown = path.relative_to(Path(settings.path).resolve()).as_posix()
    for place, column in named.items():
        if column not in columns:
            listed = ", ".join(map(str, columns))
            problems.add(f"{key}.{place}", f"{shown} has no column {column!r}; it has: {listed}")


def names(template: str) -> list[str]:
    """The columns in the template of an image's path, such as `cartoons/{contest}.jpg`."""
    return list(dict.fromkeys(_BRACES.findall(template)))


def fill(template: str, row: Mapping[str, Any], table: str) -> str:
    """The template with the row's values in place of the braces; braces in values stay."""
    values = {TABLE: table, **row}
    return _BRACES.sub(lambda match: plain_text(values.get(match[1])), template)
