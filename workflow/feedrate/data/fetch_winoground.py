"""Fetch Winoground, or draw its stand-in.

Writes images/ (every image is verified and becomes a plain JPEG file) and, last, examples.json with
a checksum for each. The folder is replaced as a whole or not at all.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec

from feedrate.config.errors import Findings, raise_all
from feedrate.config.workflow import Examples, GeneratedExamples, HubExamples, LocalExamples
from feedrate.core.files import replaced_folder, write_json
from feedrate.data.drawing import Scene, draw_files, invent
from feedrate.data.manifest import DataError, Fetched
from feedrate.data.shapes import FIGURES
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

_FIRST_CONTEST = 2_000_000
"""Drawn examples have the scenes from this contest number on, which no dataset has."""
_SIDES = (
    "the {a} is on the left and the {b} is on the right",
    "on the left there is the {a} and on the right there is the {b}",
)
_MIDDLE = (
    "the {a} looks on and the {b} is in the middle",
    "the {b} is in the middle beside the {a}",
)


class Pair(NamedTuple):
    """Two scenes, and two captions of the same words in another order."""

    scenes: tuple[Scene, Scene]
    captions: tuple[str, str]
    tag: str


def invent_pair(seed: int, number: int) -> Pair:
    """Drawn example `number` (from 0): two scenes that differ in who stands where.

    In even examples the figure and the thing exchange sides, in odd ones two figures their places.
    """
    rng = Random(f"{seed}/{number}/pair")
    found = invent(seed, _FIRST_CONTEST + number, 0.5)
    # Half the size of a dataset's picture: enough for any model, and four times as fast to read.
    width, height = found.size
    scene = replace(found, size=(width // 2, height // 2), count=1, companion=None)
    if number % 2 == 0:
        a, b = scene.figure, f"{scene.paint} {scene.thing}"
        scenes = replace(scene, left=True), replace(scene, left=False)
        tag, template = "sides", rng.choice(_SIDES)
    else:
        a, b = rng.sample(list(FIGURES), 2)
        scenes = replace(scene, figure=a, companion=b), replace(scene, figure=b, companion=a)
        tag, template = "middle", rng.choice(_MIDDLE)
    return Pair(scenes, (template.format(a=a, b=b), template.format(a=b, b=a)), tag)


def drawn(settings: GeneratedExamples, raw: Path, workers: int) -> Fetched:
    """Draw all examples into raw/images with `workers` processes."""
    (raw / "images").mkdir()
    scenes: dict[str, Scene] = {}
    rows: list[dict[str, Any]] = []
    for number in range(settings.examples):
        pair = invent_pair(settings.seed, number)
        images = [f"images/{number:04d}-{which}.jpg" for which in (0, 1)]
        scenes |= zip(images, pair.scenes, strict=True)
        rows.append(
            {
                "id": number,
                **dict(zip(IMAGES, images, strict=True)),
                "caption_0": pair.captions[0],
                "caption_1": pair.captions[1],
                "tag": pair.tag,
                "num_main_preds": 1,
                "collapsed_tag": "Object",
            }
        )
    files = draw_files(scenes, settings.seed, raw, workers)
    return Fetched(rows=rows, files=files, left_out=[])


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


def fetch_set(name: str, settings: Examples, out: Path) -> None:
    """Fetch the Winoground set `name` of config.yaml into the folder of `out`, which is
    examples.json."""
    found = fetch_winoground(name, settings, out, workers=len(os.sched_getaffinity(0)))
    print(f"fetched Winoground ({name}): {len(found.examples)} examples")


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
