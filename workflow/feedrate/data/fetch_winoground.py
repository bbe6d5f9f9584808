"""`python -m feedrate.data.fetch_winoground`: bring Winoground, or its stand-in, here.

Writes images/ (every picture verified, as a plain JPEG file) and, last, examples.json with a
checksum for each. The folder is replaced as a whole or not at all.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from feedrate.config.load import convert_text
from feedrate.config.winoground import Examples, GeneratedExamples, HubExamples, LocalExamples
from feedrate.data.cli import run_command
from feedrate.data.manifest import DataError
from feedrate.data.raw import Fetched
from feedrate.data.rows import plain_text
from feedrate.data.swap import replaced_folder
from feedrate.data.verify import Rejected, Stored, verify_images
from feedrate.data.winoground import Example, Winoground
from feedrate.data.winoground_sources import IMAGES, drawn, local, of_hub
from feedrate.files import write_json

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
