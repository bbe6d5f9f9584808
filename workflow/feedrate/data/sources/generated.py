"""The generated dataset: drawn cartoons with rows as in newyorker_caption_contest, `matching`."""

import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from feedrate.config.workflow import Generated
from feedrate.core.files import digest_text
from feedrate.data.cartoon import words
from feedrate.data.cartoon.render import render
from feedrate.data.cartoon.scene import Scene, invent
from feedrate.data.isolate import Lost, run_isolated
from feedrate.data.manifest import DataError, Fetched, RawFile

FIRST_CONTEST = 1
LABELS = "ABCDE"
_ROWS_PER_CONTEST = (1, 2, 2, 3)
_STRANGERS = 1_000_000
"""The wrong choices are quips on scenes from this contest number on: they are in no split."""
_TIMEOUT_S = 120.0


def fetch_generated(settings: Generated, raw: Path, workers: int) -> Fetched:
    """Draw all cartoons into raw/images with `workers` processes, and put them in words."""
    rows = list(_rows(settings))
    contests = sorted({row["contest_number"] for row in rows})
    (raw / "images").mkdir()
    draw = partial(draw_cartoon, settings, raw)
    drawn = run_isolated(draw, contests, workers, _TIMEOUT_S)
    files = [file for file in drawn if isinstance(file, RawFile)]
    if len(files) < len(contests):
        lost = next(file.reason for file in drawn if isinstance(file, Lost))
        raise DataError(f"a cartoon could not be drawn: {lost}")
    return Fetched(rows=rows, files=files, left_out=[])


def draw_cartoon(settings: Generated, raw: Path, contest: int) -> RawFile:
    """Draw one contest's cartoon; a function of the settings and the contest's number alone."""
    data = render(invent(settings.seed, contest, settings.grey_share), settings.seed)
    path = image_path(contest)
    (raw / path).write_bytes(data)
    return RawFile(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest())


def image_path(contest: int) -> str:
    """Where a contest's cartoon lies under raw/."""
    return f"images/{contest:05d}.jpg"


def _rows(settings: Generated) -> Iterator[dict[str, Any]]:
    """All rows; a contest has one to three and lies in one split."""
    rng = Random(f"{settings.seed}/rows")
    contest = FIRST_CONTEST
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
    """One row of a contest: its own wording, and five captions of which one is the contest's."""
    key = f"{settings.seed}/{scene.contest}/{number}"
    rng = Random(f"{key}/words")
    said, odd = words.description(scene, rng), words.uncanny(scene, rng)
    named = words.entities(scene)
    choices = _choices(settings, scene, rng)
    order = rng.sample(choices, len(choices))
    label = LABELS[order.index(choices[0])]
    offered = " ".join(f"{a}: {choice}" for a, choice in zip(LABELS, order, strict=True))
    place = scene.place.name
    return {
        "image": image_path(scene.contest),
        "origin": f"contest {scene.contest}, row {number}",
        # What a reader sent in, as in the choices, and what is seen.
        "caption": f"{choices[0]} {said}",
        "contest_number": scene.contest,
        "image_location": place,
        "image_description": said,
        "image_uncanny_description": odd,
        "entities": [f"https://en.wikipedia.org/wiki/{n.replace(' ', '_')}" for n in named],
        "questions": words.questions(scene, rng),
        "caption_choices": order,
        "from_description": f"scene: {place} description: {said} uncanny: {odd} "
        f"entities: {', '.join(named)}. choices {offered}",
        "label": label,
        "n_tokens_label": 1,
        "instance_id": digest_text(key)[:32],
    }


def _choices(settings: Generated, scene: Scene, rng: Random) -> list[str]:
    """Five different captions, the contest's own first."""
    choices = [words.quip(scene, rng)]
    while len(choices) < len(LABELS):
        stranger = invent(settings.seed, _STRANGERS + rng.randrange(_STRANGERS), 0.5)
        quip = words.quip(stranger, rng)
        if stranger.thing != scene.thing and quip not in choices:
            choices.append(quip)
    return choices
