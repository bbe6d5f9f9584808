"""Two drawings that differ in who stands where, and two captions of the same words: a stand-in for
Winoground's examples."""

from dataclasses import replace
from random import Random
from typing import NamedTuple

from feedrate.data.cartoon.animals import ANIMALS
from feedrate.data.cartoon.people import LOOKS
from feedrate.data.cartoon.scene import Scene, invent

_FIRST = 2_000_000
"""Scenes from this contest number on are in no dataset, nor strangers to one."""
_GREY_SHARE = 0.5
_SIDES = (
    "the {a} is on the left and the {b} is on the right",
    "on the left there is the {a} and on the right there is the {b}",
)
_MIDDLE = (
    "the {a} looks on and the {b} sits in the middle",
    "the {b} is in the middle beside the {a}",
)


class Pair(NamedTuple):
    """Two scenes and their captions, each in the order of the other's words."""

    scenes: tuple[Scene, Scene]
    captions: tuple[str, str]
    tag: str


def invent_pair(seed: int, number: int) -> Pair:
    """Pair `number` (from 0): a function of its arguments and of nothing else.

    By turns a figure and a thing change sides, and two animals change places.
    """
    rng = Random(f"{seed}/{number}/pair")
    found = invent(seed, _FIRST + number, _GREY_SHARE)
    # Half as large as a dataset's: large enough for any model, and read four times as fast.
    width, height = found.size
    scene = replace(found, size=(width // 2, height // 2))
    return _sides(scene, rng) if number % 2 == 0 else _middle(scene, rng)


def _sides(scene: Scene, rng: Random) -> Pair:
    """A figure left of a thing, and right of it."""
    figure = rng.choice([*LOOKS, *ANIMALS])
    thing = f"{scene.paint} {scene.thing}"
    left = replace(scene, figure=figure, left=True, companion=None)
    return _pair(left, replace(left, left=False), (figure, thing), rng.choice(_SIDES), "sides")


def _middle(scene: Scene, rng: Random) -> Pair:
    """One animal at the side with another in the middle, and the other way round."""
    side, middle = rng.sample(list(ANIMALS), 2)
    first = replace(scene, figure=side, companion=middle)
    second = replace(scene, figure=middle, companion=side)
    return _pair(first, second, (side, middle), rng.choice(_MIDDLE), "middle")


def _pair(first: Scene, second: Scene, names: tuple[str, str], said: str, tag: str) -> Pair:
    a, b = names
    return Pair((first, second), (said.format(a=a, b=b), said.format(a=b, b=a)), tag)
