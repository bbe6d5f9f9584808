"""What a cartoon shows, drawn by lot: the one source of both its picture and its captions."""

from dataclasses import dataclass
from random import Random

from feedrate.data.cartoon.animals import ANIMALS
from feedrate.data.cartoon.pen import BLACK, GREY, PALE, WHITE, Paint
from feedrate.data.cartoon.people import LOOKS, POSES, Pose
from feedrate.data.cartoon.places import PLACES, Place
from feedrate.data.cartoon.things import THINGS

INKS = {
    "black": Paint(BLACK),
    "white": Paint(WHITE),
    "grey": Paint(GREY),
    "striped": Paint(PALE, striped=True),
}
COLOURS = {
    "red": Paint((214, 64, 52)),
    "blue": Paint((66, 112, 192)),
    "green": Paint((84, 158, 88)),
    "yellow": Paint((242, 200, 70)),
    "orange": Paint((234, 138, 56)),
    "purple": Paint((134, 92, 164)),
}
PAINTS = INKS | COLOURS
THING_HEIGHTS = {"giant": 0.7, "": 0.4, "tiny": 0.17}
"""Heights of a thing in picture heights, by its adjective."""

_ASPECTS = (4 / 3, 4 / 3, 5 / 4, 1.0, 3 / 2, 4 / 5)
_SIDES_PX = (600, 1200)


@dataclass(frozen=True)
class Scene:
    """All that a cartoon shows. `left` tells on which side the main figure stands."""

    contest: int
    size: tuple[int, int]
    grey: bool
    night: bool
    bold: float
    place: Place
    figure: str
    pose: Pose
    left: bool
    thing: str
    paint: str
    thing_size: str
    companion: str | None


def invent(seed: int, contest: int, grey_share: float) -> Scene:
    """The scene of a contest: a function of its arguments and of nothing else."""
    rng = Random(f"{seed}/{contest}/scene")
    grey = rng.random() < grey_share
    return Scene(
        contest=contest,
        size=_size(rng),
        grey=grey,
        night=rng.random() < 0.3,
        bold=rng.uniform(1.5, 2.6),
        place=rng.choice(PLACES),
        figure=rng.choice([*LOOKS, *LOOKS, *ANIMALS]),
        pose=rng.choice(list(POSES)),
        left=rng.random() < 0.5,
        thing=rng.choice(list(THINGS)),
        paint=rng.choice(list(INKS if grey else COLOURS)),
        thing_size=rng.choice(list(THING_HEIGHTS)),
        companion=rng.choice([None, *ANIMALS]) if rng.random() < 0.6 else None,
    )


def _size(rng: Random) -> tuple[int, int]:
    """Width and height in pixels, each from 600 to 1,200; small pictures are more common."""
    low, high = _SIDES_PX
    aspect = rng.choice(_ASPECTS)
    short = low + (high / max(aspect, 1 / aspect) - low) * rng.random() ** 1.7
    width, height = (short * aspect, short) if aspect >= 1 else (short, short / aspect)
    return min(high, round(width)), min(high, round(height))
