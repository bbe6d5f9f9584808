"""The generated dataset: drawn pictures, and rows like those of the caption contest."""

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from feedrate.config.workflow import Generated
from feedrate.data.drawing import Scene, describe, draw_files, invent
from feedrate.data.manifest import Fetched

_LABELS = "ABCDE"
_ROWS_PER_CONTEST = (1, 2, 2, 3)
_WRONG_CHOICES = 1_000_000
"""Wrong choices describe the scenes from this contest number on, which no split contains."""


def fetch(_name: str, settings: Generated, raw: Path) -> Fetched:
    """Draw the picture of each contest into raw/images."""
    (raw / "images").mkdir()
    rows = list(_rows(settings))
    scenes = {
        row["image"]: invent(settings.seed, row["contest_number"], settings.grey_share)
        for row in rows
    }
    files = draw_files(scenes, settings.seed, raw, len(os.sched_getaffinity(0)))
    return Fetched(rows=rows, files=files, left_out=[])


def _rows(settings: Generated) -> Iterator[dict[str, Any]]:
    """All rows. Each contest has one to three, all in one split."""
    rng = Random(f"{settings.seed}/rows")
    contest = 1
    for split in ("train", "validation", "test"):
        missing: int = getattr(settings, split)
        while missing:
            scene = invent(settings.seed, contest, settings.grey_share)
            count = min(missing, rng.choice(_ROWS_PER_CONTEST))
            for number in range(1, count + 1):
                yield {"split": split, **_row(settings, scene, number)}
            missing -= count
            contest += 1


def _row(settings: Generated, scene: Scene, number: int) -> dict[str, Any]:
    """Row `number` of a contest, with its own wording and five captions to choose from."""
    rng = Random(f"{settings.seed}/{scene.contest}/{number}/words")
    sentences = describe(scene, rng)
    choices = _choices(settings, scene, sentences["quip"], rng)
    return {
        "image": f"images/{scene.contest:05d}.jpg",
        "origin": f"contest {scene.contest}, row {number}",
        "caption": f"{sentences['quip']} {sentences['description']}",
        "contest_number": scene.contest,
        "caption_choices": choices,
        "label": _LABELS[choices.index(sentences["quip"])],
    }


def _choices(settings: Generated, scene: Scene, quip: str, rng: Random) -> list[str]:
    """Five distinct captions in random order: `quip`, and four of scenes with other things."""
    choices = [quip]
    while len(choices) < len(_LABELS):
        contest = _WRONG_CHOICES + rng.randrange(_WRONG_CHOICES)
        other = invent(settings.seed, contest, settings.grey_share)
        wrong = describe(other, rng)["quip"]
        if other.thing != scene.thing and wrong not in choices:
            choices.append(wrong)
    return rng.sample(choices, len(choices))
