"""A user's own images and captions: nothing is copied; each file is listed with its checksum.
Planning checks the tables here, so pyarrow is imported late."""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from unicodedata import normalize

from feedrate.config.errors import Problems, raise_all
from feedrate.config.workflow import Folder
from feedrate.data.fetch import ListedFiles, is_hidden
from feedrate.data.manifest import DataError, Fetched, LeftOut, Unusable
from feedrate.data.tables import plain_text, read_table, split_named

TABLE = "table"
"""In the template of an image's path, `{table}` is the name of the row's table without its
extension, unless a column has this name."""

SEPARATORS = ";\t|,"
"""Between the fields of tables; one that fits the header is suggested."""

_BRACES = re.compile(r"\{([^{}]*)\}")


def fetch(name: str, settings: Folder, _raw: Path) -> Fetched:
    """List the rows and images of a folder; a missing image, or one outside, only leaves its rows
    out. Raises ConfigError for a wrong path, table or column, DataError for a wrong row."""
    root, problems = Path(settings.path).resolve(), Problems("")
    tables = check_folder(problems, f"datasets.{name}", settings)
    raise_all(problems)
    files = ListedFiles(root)
    rows: list[dict[str, Any]] = []
    left_out: list[LeftOut] = []
    for path in tables:
        name_of_table = path.relative_to(root).as_posix().encode("utf-8", "replace").decode()
        table = read_table(path, separator=settings.separator)
        for number, row in enumerate(table.rows, start=1):
            place = f"{name_of_table}, row {number}"
            image = ""
            mapped = {ours: row.get(theirs) for ours, theirs in settings.columns.items()}
            try:
                if settings.split is not None:
                    mapped["split"] = split_named(row.get(settings.split), settings.split)
                image = fill(settings.image, row, path.stem)
                rows.append(mapped | {"image": files.find(image), "origin": place})
            except Unusable as reason:
                left_out.append(
                    LeftOut(path=image or place, reason=str(reason), images=1 if image else 0)
                )
    return Fetched(rows=rows, files=files.usable(), left_out=left_out, root=str(root))


def check_folder(problems: Problems, key: str, settings: Folder) -> list[Path]:
    """The tables of a folder, sorted by name. Reports wrong settings, tables that cannot be read
    and columns that they lack."""
    root, pattern = Path(settings.path).resolve(), settings.tables
    if not root.is_dir():
        problems.add(f"{key}.path", f"there is no folder {settings.path!r}")
        return []
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        problems.add(f"{key}.tables", f"{pattern!r} is not allowed; it must stay inside path")
        return []
    tables: list[Path] = []
    with suppress(ValueError, IndexError):  # not a pattern
        forms = {normalize(form, pattern) for form in ("NFC", "NFD")}
        matching = {path for form in forms for path in root.glob(form) if path.is_file()}
        tables = sorted(path for path in matching if not is_hidden(path.relative_to(root)))
    if not tables:
        problems.add(f"{key}.tables", f"no file in {root} matches {pattern!r}")
    needed = {f"columns.{ours}": theirs for ours, theirs in settings.columns.items()}
    needed |= {f"image ({{{name}}})": name for name in names_in(settings.image) if name != TABLE}
    if settings.split is not None:
        needed["split"] = settings.split
    for path in tables:
        name = path.relative_to(root).as_posix()
        try:
            columns = read_table(path, separator=settings.separator, only_columns=True).columns
        except DataError as error:
            problems.add(f"{key}.tables", str(error))
            continue
        missing = {place: column for place, column in needed.items() if column not in columns}
        for place, column in missing.items():
            has = ", ".join(columns)
            problems.add(f"{key}.{place}", f"{name} has no column {column!r}; it has: {has}")
        for separator in SEPARATORS if missing else "":
            parts = {part.strip() for header in columns for part in header.split(separator)}
            if parts.issuperset(missing.values()) or len(columns) == 1 < len(parts):
                hint = f"{name} seems to have the separator {separator!r}; set it here"
                problems.add(f"{key}.separator", hint)
    return tables


def names_in(template: str) -> list[str]:
    """The columns in the template of an image's path, such as `cartoons/{contest}.jpg`."""
    return list(dict.fromkeys(_BRACES.findall(template)))


def fill(template: str, row: Mapping[str, Any], table: str) -> str:
    """The template with the row's values in place of the braces; braces in values stay. Raises
    Unusable if one is empty, or neither text nor a number."""
    values: dict[str, str] = {}
    for name in names_in(template):
        values[name] = plain_text(row.get(name, table if name == TABLE else None), name)
        if not values[name].strip():
            raise Unusable(f"column {name!r}: no value")
    return _BRACES.sub(lambda match: values[match[1]], template)
