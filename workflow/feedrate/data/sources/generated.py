"""The generated dataset: drawn pictures, and rows like those of jmhessel/newyorker_caption_contest
in its configuration `matching`."""

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from feedrate.config.workflow import Generated
from feedrate.core.files import digest_text
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
    key = f"{settings.seed}/{scene.contest}/{number}"
    rng = Random(f"{key}/words")
    said = describe(scene, rng)
    choices = _choices(settings, scene, said["quip"], rng)
    label = _LABELS[choices.index(said["quip"])]
    offered = " ".join(f"{a}: {choice}" for a, choice in zip(_LABELS, choices, strict=True))
    shown = [name.capitalize() for name in (scene.thing, scene.figure, scene.companion) if name]
    place, description, uncanny = scene.place.name, said["description"], said["uncanny"]
    return {
        "image": f"images/{scene.contest:05d}.jpg",
        "origin": f"contest {scene.contest}, row {number}",
        "caption": f"{said['quip']} {description}",
        "contest_number": scene.contest,
        "image_location": place,
        "image_description": description,
        "image_uncanny_description": uncanny,
        "entities": [f"https://en.wikipedia.org/wiki/{name}" for name in shown],
        "questions": [said["question"]],
        "caption_choices": choices,
        "from_description": f"scene: {place} description: {description} uncanny: {uncanny} "
        f"entities: {', '.join(shown)}. choices {offered}",
        "label": label,
        "n_tokens_label": 1,
        "instance_id": digest_text(key)[:32],
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
