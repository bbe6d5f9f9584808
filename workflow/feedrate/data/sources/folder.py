"""A user's own images and captions: nothing is copied; each file is listed with its checksum."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feedrate.config.errors import Findings, raise_all
from feedrate.config.workflow import Folder
from feedrate.data.fetch import ListedFiles
from feedrate.data.manifest import Fetched, LeftOut, Unusable
from feedrate.data.tables import (
    TOO_LONG,
    check_columns,
    fill,
    find_tables,
    plain_text,
    read_table,
    split_named,
)


def fetch(name: str, settings: Folder, _raw: Path) -> Fetched:
    """List the rows and images of a folder.

    A missing image, or one outside the folder, only leaves its rows out. Raises ConfigError for a
    wrong path or column, and DataError for a table that cannot be read.
    """
    root, key, found = Path(settings.path).resolve(), f"datasets.{name}", Findings("")
    tables = find_tables(found, key, settings)
    raise_all(found)
    files = ListedFiles(root)
    rows: list[dict[str, Any]] = []
    left_out: list[LeftOut] = []
    for path in tables:
        shown = path.relative_to(root).as_posix().encode("utf-8", "replace").decode()
        table = read_table(path)
        check_columns(found, key, settings, path, table.columns)
        raise_all(found)
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


def _mapped(settings: Folder, row: Mapping[str, Any]) -> dict[str, Any]:
    """One row in our columns, without its image. Raises Unusable."""
    if TOO_LONG in row:
        raise Unusable("more fields than the header has")
    mapped = {ours: row.get(theirs) for ours, theirs in settings.columns.items()}
    if settings.split is not None:
        value = plain_text(row.get(settings.split))
        mapped["split"] = split_named(value)
        if mapped["split"] is None:
            raise Unusable(f"its split is {value!r}, not train, validation or test")
    return mapped
