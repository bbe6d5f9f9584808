"""`python -m feedrate.data.fetch_winoground`: bring Winoground, or its stand-in, here.

Writes images/ (every picture verified, as a plain JPEG file) and, last, examples.json with a
checksum for each. The folder is replaced as a whole or not at all.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from feedrate.config.errors import Findings, raise_all
from feedrate.config.reading import convert_text
from feedrate.config.workflow import Examples, GeneratedExamples, HubExamples, LocalExamples
from feedrate.core.files import digest_file, replaced_folder, write_json
from feedrate.data.cartoon.pairs import invent_pair
from feedrate.data.cartoon.render import render
from feedrate.data.isolate import Lost, run_isolated
from feedrate.data.manifest import DataError, Fetched, RawFile, run_command
from feedrate.data.sources.hub import download
from feedrate.data.sources.listed import EmbeddedImages, ListedFiles
from feedrate.data.tables import (
    EXAMPLE_COLUMNS,
    check_examples,
    example_tables,
    plain_text,
    read_table,
)
from feedrate.data.verify import Rejected, Stored, verify_images
from feedrate.data.winoground import Example, Winoground

# Examples of Winoground: drawn here, of a table on this machine, or of the hub.

IMAGES = ("image_0", "image_1")

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
    found = Findings("")
    tables = check_examples(found, f"winoground_sets.{name}", settings)
    raise_all(found)
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
    tables = example_tables(folder)
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


def _of_tables(tables: list[Path], raw: Path) -> Fetched:
    """Rows of all tables, with their images as files under raw/."""
    images = EmbeddedImages(raw)
    rows: list[dict[str, Any]] = []
    for path in tables:
        table = read_table(path)
        missing = [name for name in EXAMPLE_COLUMNS if name not in table.columns]
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


_TEXTS = ("caption_0", "caption_1", "tag", "secondary_tag", "collapsed_tag")


def fetch_winoground(name: str, settings: Examples, out: Path, workers: int) -> Winoground:
    """Bring the examples into the folder of `out`, which is examples.json.

    All examples count: a picture or a caption that cannot be used stops it, as a score over fewer
    could be compared with no other. Raises ConfigError or DataError in one sentence.
    """
    with replaced_folder(out.parent) as folder:
        raw = folder / "raw"
        raw.mkdir()
        fetched = _fetch(name, settings, raw, workers)
        stored = verify_images(raw, fetched.files, folder, workers)
        shutil.rmtree(raw)
        found = Winoground(
            name=name,
            source=str(settings.__struct_config__.tag),
            origin=settings.name if isinstance(settings, HubExamples) else None,
            revision=fetched.revision,
            examples=_examples(name, fetched.rows, stored),
            sha256={e.path: e.sha256 for e in stored.values() if isinstance(e, Stored)},
        )
        write_json(folder / out.name, msgspec.to_builtins(found))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="feedrate.data.fetch_winoground", description=__doc__)
    parser.add_argument("--name", required=True, help="its name under winoground_sets")
    parser.add_argument("--settings", required=True, help="its settings, as a Python literal")
    parser.add_argument("--out", required=True, type=Path, help="examples.json")
    options = parser.parse_args(arguments)

    def work() -> str:
        origin = f"winoground_sets.{options.name}"
        settings = cast(Examples, convert_text(options.settings, cast(Any, Examples), origin))
        workers = len(os.sched_getaffinity(0))
        found = fetch_winoground(options.name, settings, options.out, workers)
        return f"fetched Winoground ({options.name}): {len(found.examples)} examples"

    return run_command(parser.prog, work, options.out)


def _fetch(name: str, settings: Examples, raw: Path, workers: int) -> Fetched:
    match settings:
        case GeneratedExamples():
            return drawn(settings, raw, workers)
        case LocalExamples():
            return local(name, settings, raw)
        case HubExamples():
            return of_hub(settings, raw)


def _examples(
    name: str, rows: Sequence[dict[str, Any]], stored: dict[str, Stored | Rejected]
) -> list[Example]:
    """The rows with their verified images. Raises DataError for the first that is of no use."""
    examples: dict[int, Example] = {}
    for number, row in enumerate(rows):
        where = f"winoground_sets.{name}: example {number}"
        texts = {key: plain_text(row.get(key)).strip() for key in _TEXTS}
        if not (texts["caption_0"] and texts["caption_1"]):
            raise DataError(f"{where}: a caption is empty")
        identity = _number(row.get("id", number))
        if identity is None or identity in examples:
            raise DataError(f"{where}: its id {row['id']!r} is no number, or stands twice")
        images = {}
        for key in IMAGES:
            image = stored[row[key]]
            if isinstance(image, Rejected):
                raise DataError(f"{where}: {key}: {image.reason}")
            images[key] = image.path
        preds = _number(row.get("num_main_preds"))
        examples[identity] = Example(id=identity, num_main_preds=preds, **images, **texts)
    if not examples:
        raise DataError(f"winoground_sets.{name}: no example there")
    return list(examples.values())


def _number(value: Any) -> int | None:
    """A whole number, be it written as text; None for anything else."""
    try:
        return int(plain_text(value))
    except ValueError:
        return None


if __name__ == "__main__":
    sys.exit(main())
