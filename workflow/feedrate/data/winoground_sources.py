"""Examples of Winoground: drawn here, of a table on this machine, or of the hub."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from feedrate.config.load import ConfigError
from feedrate.config.winoground import GeneratedExamples, HubExamples, LocalExamples
from feedrate.data.cartoon.pairs import invent_pair
from feedrate.data.cartoon.render import render
from feedrate.data.isolate import Lost, run_isolated
from feedrate.data.manifest import DataError
from feedrate.data.raw import Fetched, RawFile
from feedrate.data.sources.embedded import EmbeddedImages
from feedrate.data.sources.hub import download
from feedrate.data.sources.listed import ListedFiles
from feedrate.data.sources.tables import read_table
from feedrate.files import digest_file

IMAGES = ("image_0", "image_1")
NEEDED = (*IMAGES, "caption_0", "caption_1")
"""Columns without which a table is none of Winoground."""

_TIMEOUT_S = 120.0


def drawn(settings: GeneratedExamples, raw: Path, workers: int) -> Fetched:
    """Draw all examples into raw/images with `workers` processes."""
    (raw / "images").mkdir()
    places = [(number, which) for number in range(settings.examples) for which in (0, 1)]
    files = run_isolated(partial(_draw, settings.seed, raw), places, workers, _TIMEOUT_S)
    for file in files:
        if isinstance(file, Lost):
            raise DataError(f"a cartoon of Winoground's stand-in could not be drawn: {file.reason}")
    rows = list(_drawn_rows(settings))
    return Fetched(rows=rows, files=[f for f in files if isinstance(f, RawFile)], left_out=[])


def local(name: str, settings: LocalExamples, raw: Path) -> Fetched:
    """Read a table of this machine; images in its cells are written into raw/images.

    Raises ConfigError for a wrong path, and DataError for a table or an image that cannot be used.
    """
    path = Path(settings.path)
    if not path.exists():
        raise ConfigError(f"winoground_sets.{name}.path: there is no {settings.path!r}")
    tables = _tables(path)
    if not tables:
        raise ConfigError(
            f"winoground_sets.{name}.path: {settings.path!r} has no *.parquet or *.jsonl file "
            "(images.zip of the hub's first layout must be unpacked, beside examples.jsonl)"
        )
    return _of_tables(tables, raw)


def of_hub(settings: HubExamples, raw: Path) -> Fetched:
    """Download the hub's Parquet files. Raises DataError, in a sentence, where it refuses."""
    what = f"dataset {settings.name}"
    folder = download(
        what,
        settings.name,
        settings.revision,
        ["*.parquet"],
        "set `winoground` to the generated one, a local copy or null",
        repo_type="dataset",
    )
    tables = _tables(folder)
    if not tables:
        raise DataError(f"{what} at {settings.revision} has no Parquet file: take another revision")
    fetched = _of_tables(tables, raw)
    return Fetched(
        rows=fetched.rows,
        files=fetched.files,
        left_out=[],
        root=fetched.root,
        revision=folder.name,
    )


def _draw(seed: int, raw: Path, place: tuple[int, int]) -> RawFile:
    """Draw one of the two images of an example."""
    number, which = place
    path = _drawn_path(number, which)
    (raw / path).write_bytes(render(invent_pair(seed, number).scenes[which], seed))
    return _listed(raw, path)


def _drawn_path(number: int, which: int) -> str:
    return f"images/{number:04d}-{which}.jpg"


def _drawn_rows(settings: GeneratedExamples) -> Iterator[dict[str, Any]]:
    for number in range(settings.examples):
        pair = invent_pair(settings.seed, number)
        yield {
            "id": number,
            **{name: _drawn_path(number, which) for which, name in enumerate(IMAGES)},
            "caption_0": pair.captions[0],
            "caption_1": pair.captions[1],
            "tag": pair.tag,
            "num_main_preds": 1,
            "collapsed_tag": "Object",
        }


def _tables(path: Path) -> list[Path]:
    """The table that `path` is, or those of the folder: Parquet where there is any."""
    if path.is_file():
        return [path]
    return next(
        (found for end in ("parquet", "jsonl") if (found := sorted(path.rglob(f"*.{end}")))), []
    )


def _of_tables(tables: list[Path], raw: Path) -> Fetched:
    """Rows of all tables, with their images as files under raw/."""
    images = EmbeddedImages(raw)
    rows: list[dict[str, Any]] = []
    for path in tables:
        table = read_table(path)
        missing = [name for name in NEEDED if name not in table.columns]
        if missing:
            raise DataError(
                f"{path}: not Winoground's columns: {', '.join(missing)} missing; "
                f"it has: {', '.join(map(str, table.columns))}"
            )
        beside = ListedFiles(path.parent.resolve())
        for number, row in enumerate(table.rows, start=1):
            where = f"{path}, row {number}"
            rows.append(row | {name: _image(row[name], images, beside, where) for name in IMAGES})
    return Fetched(rows=rows, files=images.written(), left_out=[])


def _image(value: Any, images: EmbeddedImages, beside: ListedFiles, where: str) -> str:
    """The path under raw/ of an image that stands in a cell, or whose file the cell names."""
    if isinstance(value, dict) and value.get("bytes") is None:
        value = value.get("path")
    if isinstance(value, str):
        value = {"bytes": None, "path": str(_beside(value, beside, where))}
    written = images.write(value, beside) if isinstance(value, dict) else None
    if written is None:
        raise DataError(f"{where}: no image, or one that is too large")
    return written


def _beside(named: str, beside: ListedFiles, where: str) -> Path:
    """The file of a name, beside its table or in images/ there; the hub's names lack their ending.

    Raises DataError where there is none, or it lies outside the table's folder.
    """
    for candidate in (named, f"images/{named}", f"{named}.png", f"images/{named}.png"):
        found = beside.find(candidate)
        if found is not None:
            return beside.root / found
    reason = next(lost.reason for lost in beside.lost() if lost.path == named)
    raise DataError(f"{where}: image {named!r}: {reason}")


def _listed(raw: Path, path: str) -> RawFile:
    file = raw / path
    return RawFile(path=path, size=file.stat().st_size, sha256=digest_file(file))
