"""Winoground: examples of two images and two captions; each caption describes one of the images.

Both captions have the same words (Thrush et al. 2022, arXiv 2204.03162). The examples are fetched,
or drawn as a stand-in. A folder holds images/ (verified plain JPEG files) and, written last,
examples.json with a checksum for each. It is replaced as a whole or not at all.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Annotated, Any

import msgspec

from feedrate.config.errors import Findings, raise_all
from feedrate.config.values import Strict, about
from feedrate.config.workflow import Examples, GeneratedExamples, HubExamples, LocalExamples
from feedrate.core.files import replaced_folder, write_json
from feedrate.data.drawing import Scene, draw_files, invent
from feedrate.data.fetch import EmbeddedImages, ListedFiles
from feedrate.data.hub import download
from feedrate.data.isolate import Lost
from feedrate.data.manifest import DataError, Fetched, check_file, read_document
from feedrate.data.shapes import FIGURES
from feedrate.data.tables import (
    check_example_columns,
    check_examples,
    example_tables,
    plain_text,
    read_table,
)
from feedrate.data.verify import Stored, verify_images

_IMAGES = ("image_0", "image_1")
_TEXTS = ("caption_0", "caption_1", "tag", "secondary_tag", "collapsed_tag")

_FIRST_CONTEST = 2_000_000
"""Drawn examples use the scenes from this contest number on, which no dataset uses."""
_SIDES = (
    "the {a} is on the left and the {b} is on the right",
    "on the left there is the {a} and on the right there is the {b}",
)
_MIDDLE = (
    "the {a} looks on and the {b} is in the middle",
    "the {b} is in the middle beside the {a}",
)


class Example(Strict, frozen=True, kw_only=True):
    """One example, with the hub's columns; images are paths in the folder of examples.json."""

    id: int
    image_0: str
    image_1: str
    caption_0: Annotated[str, about("Describes image_0.")]
    caption_1: Annotated[str, about("Describes image_1.")]
    tag: str = ""
    secondary_tag: str = ""
    num_main_preds: int | None = None
    collapsed_tag: str = ""

    @property
    def images(self) -> tuple[str, str]:
        """Both images."""
        return self.image_0, self.image_1

    @property
    def captions(self) -> tuple[str, str]:
        """Both captions."""
        return self.caption_0, self.caption_1


class Winoground(Strict, frozen=True, kw_only=True):
    """examples.json."""

    schema: int = 2
    name: Annotated[str, about("As config.yaml names this copy.")]
    source: Annotated[str, about("generated, folder or hub.")]
    origin: Annotated[str | None, about("The hub's repository.")]
    revision: Annotated[str | None, about("Its commit.")] = None
    examples: list[Example]
    sha256: Annotated[dict[str, str], about("Of every image, by path.")]

    @property
    def described(self) -> str:
        """Which copy it is: `generated`, `folder (NAME)` or `hub (REPOSITORY at COMMIT)`."""
        details = {"folder": f" ({self.name})", "hub": f" ({self.origin} at {self.revision})"}
        return f"{self.source}{details.get(self.source, '')}"


def read_winoground(path: Path) -> Winoground:
    """Read examples.json and compare the images with their checksums. Raises DataError."""
    found = read_document(path, Winoground, "Winoground has not been fetched")
    for image, sha256 in found.sha256.items():
        check_file(path.parent, image, sha256)
    return found


def fetch_set(name: str, settings: Examples, out: Path) -> None:
    """Fetch the Winoground set `name` of config.yaml into the folder of `out`, which is
    examples.json."""
    found = fetch_winoground(name, settings, out, workers=len(os.sched_getaffinity(0)))
    print(f"fetched Winoground ({name}): {len(found.examples)} examples")


def fetch_winoground(name: str, settings: Examples, out: Path, workers: int) -> Winoground:
    """Fetch the examples into the folder of `out`, which is examples.json.

    One unusable image or caption is an error, because a score over fewer examples could not be
    compared with any other. Raises ConfigError or DataError, one sentence.
    """
    with replaced_folder(out.parent) as folder:
        raw = folder / "raw"
        raw.mkdir()
        match settings:
            case GeneratedExamples():
                fetched = _drawn(settings, raw, workers)
            case LocalExamples():
                wrong = Findings("")
                tables = check_examples(wrong, f"winoground_sets.{name}", settings)
                raise_all(wrong)
                fetched = _of_tables(tables, raw)
            case HubExamples():
                fetched = _of_hub(settings, raw)
        stored = verify_images(raw, fetched.files, folder, workers)
        shutil.rmtree(raw)
        found = Winoground(
            name=name,
            source=str(settings.__struct_config__.tag),
            origin=settings.name if isinstance(settings, HubExamples) else None,
            revision=fetched.revision,
            examples=_examples(f"winoground_sets.{name}", fetched.rows, stored),
            sha256={e.path: e.sha256 for e in stored.values() if isinstance(e, Stored)},
        )
        write_json(folder / out.name, msgspec.to_builtins(found))
    return found


def invent_pair(seed: int, number: int) -> tuple[tuple[Scene, Scene], tuple[str, str], str]:
    """Drawn example `number` (from 0): two scenes that differ only in positions, their captions, of
    the same words in another order, and the tag. In even examples the figure and the thing swap
    sides; in odd ones two figures do."""
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
    return scenes, (template.format(a=a, b=b), template.format(a=b, b=a)), tag


def _drawn(settings: GeneratedExamples, raw: Path, workers: int) -> Fetched:
    (raw / "images").mkdir()
    scenes: dict[str, Scene] = {}
    rows: list[dict[str, Any]] = []
    for number in range(settings.examples):
        drawn, captions, tag = invent_pair(settings.seed, number)
        images = [f"images/{number:04d}-{which}.jpg" for which in (0, 1)]
        scenes |= zip(images, drawn, strict=True)
        row = dict(zip(_IMAGES + _TEXTS[:2], (*images, *captions), strict=True))
        more = {"tag": tag, "num_main_preds": 1, "collapsed_tag": "Object"}
        rows.append({"id": number, **row, **more})
    files = draw_files(scenes, settings.seed, raw, workers)
    return Fetched(rows=rows, files=files, left_out=[])


def _of_hub(settings: HubExamples, raw: Path) -> Fetched:
    """Download the hub's Parquet files. Raises DataError if the hub refuses."""
    name, revision = settings.name, settings.revision
    advice = "set `winoground` to the generated one, a local copy or null"
    folder = download("dataset", name, revision, ["*.parquet"], advice)
    tables = example_tables(folder)
    if not tables:
        raise DataError(f"dataset {name} at {revision} has no Parquet file: take another revision")
    return msgspec.structs.replace(_of_tables(tables, raw), revision=folder.name)


def _of_tables(tables: list[Path], raw: Path) -> Fetched:
    """The rows of all tables, with their images as files under raw/. Raises DataError."""
    images = EmbeddedImages(raw)
    rows: list[dict[str, Any]] = []
    for path in tables:
        listed, table = ListedFiles(path.parent.resolve()), read_table(path)
        check_example_columns(path, table.columns)
        for number, row in enumerate(table.rows, start=1):
            where = f"{path}, row {number}"
            rows.append(row | {key: _image(row[key], images, listed, where) for key in _IMAGES})
    return Fetched(rows=rows, files=images.written(), left_out=[])


def _image(value: Any, images: EmbeddedImages, listed: ListedFiles, where: str) -> str:
    """Write the image that a cell contains, or whose file it names; return its path under raw/.

    The hub's file names lack `images/` and `.png`. Raises DataError if there is no such image.
    """
    if isinstance(value, dict) and value.get("bytes") is None:
        value = value.get("path")
    if isinstance(value, str):
        candidates = (value, f"images/{value}", f"{value}.png", f"images/{value}.png")
        found = next((file for name in candidates if (file := listed.find(name))), None)
        if found is None:
            reason = next(lost.reason for lost in listed.lost() if lost.path == value)
            raise DataError(f"{where}: image {value!r}: {reason}")
        value = {"bytes": None, "path": str(listed.root / found)}
    written = images.write(value, listed) if isinstance(value, dict) else None
    if written is None:
        raise DataError(f"{where}: no image, or one that is too large")
    return written


def _examples(
    key: str, rows: Sequence[dict[str, Any]], stored: dict[str, Stored | Lost]
) -> list[Example]:
    """The rows with their verified images. Raises DataError for the first unusable row."""
    examples: dict[int, Example] = {}
    for number, row in enumerate(rows):
        where = f"{key}: example {number}"
        texts = {name: plain_text(row.get(name)).strip() for name in _TEXTS}
        if not (texts["caption_0"] and texts["caption_1"]):
            raise DataError(f"{where}: a caption is empty")
        identity = _number(row.get("id", number))
        if identity is None or identity in examples:
            raise DataError(f"{where}: its id {row['id']!r} is not a number, or occurs twice")
        images = {}
        for name in _IMAGES:
            image = stored[row[name]]
            if isinstance(image, Lost):
                raise DataError(f"{where}: {name}: {image.reason}")
            images[name] = image.path
        preds = _number(row.get("num_main_preds"))
        examples[identity] = Example(id=identity, num_main_preds=preds, **images, **texts)
    if not examples:
        raise DataError(f"{key}: it has no example")
    return list(examples.values())


def _number(value: Any) -> int | None:
    """A whole number, even if written as text; None for anything else."""
    try:
        return int(plain_text(value))
    except ValueError:
        return None
