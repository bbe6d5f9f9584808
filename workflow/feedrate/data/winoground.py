"""Winoground: examples of two images, and of two captions of the same words that describe one image
each (Thrush et al. 2022, arXiv 2204.03162). They are fetched, or drawn as a stand-in. A folder
holds images/ (verified plain JPEG files) and, written last, examples.json with their checksums."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Annotated, Any

import msgspec

from feedrate.config.values import Strict, about
from feedrate.config.workflow import Examples, GeneratedExamples, HubExamples, LocalExamples
from feedrate.core.files import replaced_folder, write_json
from feedrate.data.drawing import Scene, draw_files, invent
from feedrate.data.fetch import EmbeddedImages
from feedrate.data.hub import download
from feedrate.data.isolate import Lost
from feedrate.data.manifest import DataError, RawFile, Unusable, check_files, read_document
from feedrate.data.shapes import FIGURES
from feedrate.data.tables import example_tables, plain_text, read_table, texts
from feedrate.data.verify import Stored, verify_images

Rows = list[dict[str, Any]]

_IMAGES = ("image_0", "image_1")
_CAPTIONS = ("caption_0", "caption_1")
_FIRST_CONTEST = 2_000_000  # drawn examples use scenes from here on, which no dataset uses
_SIDES = (
    "the {a} is on the left and the {b} is on the right",
    "on the left there is the {a} and on the right there is the {b}",
)
_MIDDLE = (
    "the {a} looks on and the {b} is in the middle",
    "the {b} is in the middle beside the {a}",
)


class Example(Strict, frozen=True, kw_only=True):
    """One example."""

    id: int
    images: Annotated[tuple[str, str], about("Paths in the folder of examples.json.")]
    captions: Annotated[tuple[str, str], about("Each describes the image at its place.")]


class Winoground(Strict, frozen=True, kw_only=True):
    """examples.json."""

    schema: int = 3
    copy: Annotated[str, about("generated, folder (NAME) or hub (REPOSITORY at COMMIT).")]
    examples: list[Example]
    sha256: Annotated[dict[str, str], about("Of every image, by path.")]


def read_winoground(path: Path) -> Winoground:
    """Read examples.json and compare the images with their checksums. Raises DataError."""
    document = read_document(path, Winoground, "Winoground has not been fetched")
    check_files(path.parent, document.sha256)
    return document


def fetch_winoground(name: str, settings: Examples, out: Path) -> None:
    """Fetch a set; `out` is examples.json. One unusable example is a DataError: a score over
    fewer could not be compared with any other."""
    key, workers = f"winoground_sets.{name}", len(os.sched_getaffinity(0))
    copy = str(settings.__struct_config__.tag)
    with replaced_folder(out.parent) as folder:
        raw = folder / "raw"
        raw.mkdir()
        match settings:
            case GeneratedExamples():
                rows, files = _draw(settings, raw, workers)
            case LocalExamples():
                copy += f" ({name})"
                rows, files = _read_tables(Path(settings.path), raw)
            case HubExamples():
                advice = "set `winoground` to the generated one, a local copy or null"
                source, revision = settings.name, settings.revision
                downloaded = download("dataset", source, revision, ["*.parquet"], advice)
                copy += f" ({source} at {downloaded.name})"
                rows, files = _read_tables(downloaded, raw)
        stored = verify_images(raw, files, folder, workers)
        shutil.rmtree(raw)
        examples = _examples(key, rows, stored)
        sha256 = {i.path: i.sha256 for i in stored.values() if isinstance(i, Stored)}
        document = Winoground(copy=copy, examples=examples, sha256=sha256)
        write_json(folder / out.name, msgspec.to_builtins(document))
    print(f"fetched Winoground ({name}): {len(examples)} examples")


def invent_pair(seed: int, number: int) -> tuple[tuple[Scene, Scene], tuple[str, str]]:
    """Drawn example `number` (from 0): two scenes that differ only in positions, and their
    captions, of the same words in another order. In even examples the figure and the thing swap
    sides; in odd ones two figures do."""
    rng = Random(f"{seed}/{number}/pair")
    whole = invent(seed, _FIRST_CONTEST + number, 0.5)
    # Half the size of a dataset's picture: enough for any model, and four times as fast to read.
    width, height = whole.size
    scene = replace(whole, size=(width // 2, height // 2), count=1, companion=None)
    if number % 2 == 0:
        a, b = scene.figure, f"{scene.paint} {scene.thing}"
        scenes = replace(scene, left=True), replace(scene, left=False)
        template = rng.choice(_SIDES)
    else:
        a, b = rng.sample(list(FIGURES), 2)
        scenes = replace(scene, figure=a, companion=b), replace(scene, figure=b, companion=a)
        template = rng.choice(_MIDDLE)
    return scenes, (template.format(a=a, b=b), template.format(a=b, b=a))


def _draw(settings: GeneratedExamples, raw: Path, workers: int) -> tuple[Rows, list[RawFile]]:
    (raw / "images").mkdir()
    scenes: dict[str, Scene] = {}
    rows: Rows = []
    for number in range(settings.examples):
        pair, captions = invent_pair(settings.seed, number)
        images = f"images/{number:04d}-0.jpg", f"images/{number:04d}-1.jpg"
        scenes |= zip(images, pair, strict=True)
        rows.append(dict(zip(_IMAGES + _CAPTIONS, images + captions, strict=True)))
    return rows, draw_files(scenes, settings.seed, raw, workers)


def _read_tables(copy: Path, raw: Path) -> tuple[Rows, list[RawFile]]:
    """The rows of a copy's tables, with their images as files under raw/. Raises DataError."""
    images = EmbeddedImages(raw)
    rows: Rows = []
    for path in example_tables(copy):
        for number, row in enumerate(read_table(path).rows, start=1):
            try:
                rows.append(row | {name: images.write(row[name]) for name in _IMAGES})
            except Unusable as reason:
                raise DataError(f"{path}, row {number}: {reason}") from None
    return rows, images.written()


def _examples(key: str, rows: Rows, stored: dict[str, Stored | Lost]) -> list[Example]:
    """The rows with their verified images. Raises DataError for the first unusable row."""
    examples: dict[int, Example] = {}
    for number, row in enumerate(rows):
        place = f"{key}: example {number}"
        try:
            captions = [texts(row.get(name), name) for name in _CAPTIONS]
            text = plain_text(row.get("id", number), "id")
        except Unusable as reason:
            raise DataError(f"{place}: {reason}") from None
        if any(len(caption) != 1 for caption in captions):
            raise DataError(f"{place}: a caption is empty, or a list")
        if not text.removeprefix("-").isdecimal() or int(text) in examples:
            raise DataError(f"{place}: its id {text} is not a number, or occurs twice")
        images = []
        for name in _IMAGES:
            image = stored[row[name]]
            if isinstance(image, Lost):
                raise DataError(f"{place}: {name}: {image.reason}")
            images.append(image.path)
        examples[int(text)] = Example(
            id=int(text),
            images=(images[0], images[1]),
            captions=(captions[0][0], captions[1][0]),
        )
    if not examples:
        raise DataError(f"{key}: it has no example")
    return list(examples.values())
