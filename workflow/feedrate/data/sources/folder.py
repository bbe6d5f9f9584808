"""Images and captions of the user's own: nothing is copied, each file is listed by its digest."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feedrate.config.errors import ConfigError
from feedrate.config.workflow import Folder
from feedrate.data.manifest import Fetched, LeftOut
from feedrate.data.rows import (
    OWN,
    TABLE,
    TOO_LONG,
    Table,
    fill,
    names,
    plain_text,
    read_table,
    split_named,
)
from feedrate.data.sources.listed import ListedFiles, Unusable


def fetch_folder(name: str, settings: Folder) -> Fetched:
    """List the rows and images of a folder.

    Raises ConfigError for a wrong path or column and DataError for a table that cannot be read;
    a missing image, or one outside the folder, only leaves its rows out.
    """
    root = Path(settings.path).resolve()
    origin = f"datasets.{name}"
    if not root.is_dir():
        raise ConfigError(f"{origin}.path: there is no folder {settings.path!r}")
    if "caption" not in settings.columns:
        raise ConfigError(f"{origin}.columns.caption: missing, but required")
    for own in settings.columns.keys() & set(OWN):
        raise ConfigError(f"{origin}.columns.{own}: this column is made by the suite itself")
    files = ListedFiles(root)
    rows: list[dict[str, Any]] = []
    left_out: list[LeftOut] = []
    for path in _tables(origin, root, settings):
        shown = path.relative_to(root).as_posix().encode("utf-8", "replace").decode()
        table = read_table(path)
        _check_columns(origin, settings, shown, table)
        for number, row in enumerate(table.rows, start=1):
            where = f"{shown}, row {number}"
            try:
                mapped = _mapped(settings, row)
            except Unusable as reason:
                left_out.append(LeftOut(path=where, reason=str(reason)))
                continue
            image = files.find(fill(settings.image, row, path.stem))
            if image is not None:
                rows.append(mapped | {"image": image, "origin": where})
    return Fetched(rows=rows, files=files.found(), left_out=left_out + files.lost(), root=str(root))


def _tables(origin: str, root: Path, settings: Folder) -> list[Path]:
    """The table files, by name."""
    pattern = settings.tables
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise ConfigError(f"{origin}.tables: {pattern!r} is not allowed; it must stay inside path")
    try:
        found = sorted(path for path in root.glob(pattern) if path.is_file())
    except (ValueError, IndexError):
        raise ConfigError(f"{origin}.tables: {pattern!r} is not a pattern of file names") from None
    if not found:
        raise ConfigError(f"{origin}.tables: no file in {root} matches {pattern!r}")
    return found


def _check_columns(origin: str, settings: Folder, shown: str, table: Table) -> None:
    """Every column that the settings name must be in the table."""
    asked = {f"columns.{ours}": theirs for ours, theirs in settings.columns.items()}
    asked |= {f"image ({{{name}}})": name for name in names(settings.image) if name != TABLE}
    if settings.split is not None:
        asked["split"] = settings.split
    for key, column in asked.items():
        if column not in table.columns:
            raise ConfigError(
                f"{origin}.{key}: {shown} has no column {column!r}; "
                f"it has: {', '.join(map(str, table.columns))}"
            )


def _mapped(settings: Folder, row: Mapping[str, Any]) -> dict[str, Any]:
    """One row in our columns, its image aside. Raises Unusable."""
    if TOO_LONG in row:
        raise Unusable("more fields than the header has")
    mapped = {ours: row.get(theirs) for ours, theirs in settings.columns.items()}
    if settings.split is not None:
        value = plain_text(row.get(settings.split))
        mapped["split"] = split_named(value)
        if mapped["split"] is None:
            raise Unusable(f"its split is {value!r}, not train, validation or test")
    return mapped
