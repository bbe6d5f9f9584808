"""The people of the cartoons. A figure's frame has its origin between the feet, its height as unit,
and the figure faces right."""

from dataclasses import dataclass
from typing import Literal

from feedrate.data.cartoon.pen import BLACK, DARK, GREY, PALE, WHITE, Frame, Point, Rgb

Pose = Literal["stand", "arms_up", "point", "hips", "reach"]

POSES: dict[Pose, str] = {
    "stand": "stands still",
    "arms_up": "throws both arms in the air",
    "point": "points a finger",
    "hips": "stands with hands on hips",
    "reach": "holds out both hands",
}
"""How a pose is said."""

_HANDS: dict[Pose, tuple[tuple[Point, Point], tuple[Point, Point]]] = {
    "stand": (((-0.17, 0.6), (-0.16, 0.45)), ((0.17, 0.6), (0.17, 0.45))),
    "arms_up": (((-0.22, 0.85), (-0.2, 1.02)), ((0.22, 0.85), (0.21, 1.02))),
    "point": (((-0.17, 0.6), (-0.15, 0.45)), ((0.22, 0.7), (0.38, 0.74))),
    "hips": (((-0.25, 0.6), (-0.1, 0.48)), ((0.25, 0.6), (0.1, 0.48))),
    "reach": (((0.0, 0.56), (0.27, 0.6)), ((0.14, 0.58), (0.3, 0.66))),
}
"""Elbow and hand of the left and of the right arm."""


@dataclass(frozen=True)
class Look:
    """What a kind of person wears."""

    coat: Rgb = DARK
    trousers: Rgb = GREY
    long: bool = False
    hair: Rgb | None = BLACK
    texture: Literal["", "stripes", "dots", "tie", "plates"] = ""


LOOKS: dict[str, Look] = {
    "businessman": Look(coat=BLACK, trousers=BLACK, texture="tie"),
    "woman in a long dress": Look(coat=PALE, long=True, hair=DARK),
    "king": Look(coat=GREY, long=True, hair=WHITE),
    "chef": Look(coat=WHITE, trousers=DARK, hair=None),
    "pirate": Look(coat=WHITE, trousers=BLACK, texture="stripes"),
    "astronaut": Look(coat=WHITE, trousers=WHITE, hair=None),
    "witch": Look(coat=BLACK, long=True, hair=GREY),
    "clown": Look(coat=PALE, trousers=PALE, hair=None, texture="dots"),
    "knight": Look(coat=GREY, trousers=GREY, hair=None, texture="plates"),
    "doctor": Look(coat=WHITE, trousers=DARK, hair=DARK),
    "old man with a beard": Look(coat=DARK, trousers=PALE, hair=None),
    "child": Look(coat=PALE, trousers=DARK, hair=BLACK, texture="stripes"),
}
"""Kinds of people, by the words that name them."""


def draw_person(f: Frame, kind: str, pose: Pose) -> None:
    """Draw one person; `kind` is a key of LOOKS. A child is drawn with a larger head."""
    look = LOOKS[kind]
    far, near = _HANDS[pose]
    if pose != "reach":
        _arm(f, (-0.1, 0.72), far, look)
    _lower_body(f, look)
    _torso(f, look)
    if pose == "reach":
        _arm(f, (0.02, 0.7), far, look)
    _head(f, look, size=1.35 if kind == "child" else 1.0)
    _arm(f, (0.1, 0.72), near, look)
    _attribute(f, kind, near[1])


def _arm(f: Frame, shoulder: Point, bent: tuple[Point, Point], look: Look) -> None:
    elbow, hand = bent
    f.limb(shoulder, elbow, hand, thick=0.065, fill=look.coat)
    f.oval(*hand, 0.03, 0.03)


def _lower_body(f: Frame, look: Look) -> None:
    for side in (-1, 1):
        f.oval(side * 0.06 + 0.03, 0.012, 0.06, 0.02, fill=BLACK)
    if look.long:
        skirt = [(-0.1, 0.5), (0.1, 0.5), (0.19, 0.03), (0.06, 0.02), (-0.06, 0.03), (-0.19, 0.02)]
        f.shape(*skirt, fill=look.coat)
        f.hatch((0.02, 0.5), (0.1, 0.5), (0.19, 0.03), (0.1, 0.02), gap=5, angle=80)
        return
    for side in (-1, 1):
        f.limb((side * 0.05, 0.46), (side * 0.065, 0.02), thick=0.085, fill=look.trousers)
    if look.texture == "plates":
        for y in (0.12, 0.25, 0.38):
            f.line((-0.1, y), (0.1, y))


def _torso(f: Frame, look: Look) -> None:
    trunk = [
        (-0.13, 0.74),
        (-0.06, 0.77),
        (0.06, 0.77),
        (0.13, 0.74),
        (0.115, 0.42),
        (-0.115, 0.42),
    ]
    f.shape(*trunk, fill=look.coat)
    if look.texture == "stripes":
        for k in range(5):
            f.line((-0.12, 0.46 + 0.06 * k), (0.12, 0.46 + 0.06 * k), width=2.6)
    elif look.texture == "dots":
        for x, y in ((-0.06, 0.5), (0.05, 0.55), (-0.04, 0.64), (0.07, 0.68), (0.0, 0.45)):
            f.dot(x, y, 0.02)
    elif look.texture == "tie":
        f.shape((-0.045, 0.765), (0.045, 0.765), (0, 0.58))
        f.shape((-0.012, 0.75), (0.012, 0.75), (0.016, 0.62), (0, 0.6), (-0.016, 0.62), fill=DARK)
    elif look.texture == "plates":
        f.hatch(*trunk, gap=5, angle=20)
    else:
        f.line((0, 0.76), (0, 0.44), width=0.8)
        f.hatch((0.05, 0.76), (0.13, 0.74), (0.115, 0.42), (0.07, 0.42), gap=5, angle=60)


def _head(f: Frame, look: Look, size: float) -> None:
    y, rx, ry = 0.86, 0.075 * size, 0.095 * size
    if look.hair:
        f.oval(-0.015, y + 0.022, rx * 1.08, ry * 1.02, fill=look.hair)
    face = [(-0.7, 0.5), (-0.75, -0.3), (-0.2, -0.95), (0.55, -0.75), (0.85, 0.0), (0.6, 0.65)]
    f.blob(*[(rx * px, y + ry * py) for px, py in face])
    f.blob((rx * 0.75, y + 0.02), (rx * 1.35, y - 0.015), (rx * 0.8, y - 0.025), width=0.8)
    for x in (0.15, 0.6):
        f.dot(rx * x, y + 0.022, 0.009)
    f.curve((rx * 0.2, y - 0.05), (rx * 0.5, y - 0.055), (rx * 0.75, y - 0.045), width=0.9)


def _attribute(f: Frame, kind: str, hand: Point) -> None:
    """What tells the kind at a glance: a hat, a beard, a helmet, a bag."""
    x, y = hand
    if kind == "businessman":
        f.box(x - 0.09, y - 0.14, 0.18, 0.12, fill=DARK)
        f.curve((x - 0.03, y - 0.02), (x, y + 0.005), (x + 0.03, y - 0.02))
    elif kind == "woman in a long dress":
        f.blob((-0.06, 0.95), (-0.12, 0.84), (-0.11, 0.66), (-0.05, 0.74), fill=DARK)
        f.oval(-0.02, 0.97, 0.05, 0.035, fill=DARK)
    elif kind == "king":
        crown = [(-0.085, 0.92), (-0.1, 1.05), (-0.045, 0.98), (0, 1.07), (0.045, 0.98)]
        f.shape(*crown, (0.1, 1.05), (0.085, 0.92), fill=WHITE, width=1.4)
        f.blob((-0.03, 0.82), (0.02, 0.68), (0.08, 0.81))
    elif kind == "chef":
        f.box(-0.07, 0.92, 0.14, 0.06)
        f.blob((-0.07, 0.98), (-0.13, 1.06), (0, 1.12), (0.13, 1.06), (0.07, 0.98))
    elif kind == "pirate":
        f.blob((-0.16, 0.93), (0, 1.05), (0.16, 0.93), (0, 0.925), fill=BLACK)
        f.dot(0.045, 0.88, 0.025)
        f.dot(0.0, 0.98, 0.018, tone=WHITE)
    elif kind == "astronaut":
        f.oval(0, 0.88, 0.135, 0.135, width=1.6)
        f.oval(0.02, 0.88, 0.1, 0.085, fill=DARK)
        f.line((-0.03, 0.92), (0.02, 0.94), tone=WHITE, width=2)
        f.box(-0.06, 0.56, 0.12, 0.09, fill=GREY)
    elif kind == "witch":
        f.shape((-0.09, 0.94), (-0.03, 1.2), (0.09, 0.94), fill=BLACK)
        f.oval(0, 0.94, 0.17, 0.022, fill=BLACK)
    elif kind == "clown":
        for side in (-0.1, 0.1):
            f.oval(side, 0.9, 0.05, 0.065, fill=DARK)
        f.dot(0.09, 0.855, 0.03)
        f.shape((-0.03, 0.95), (0.01, 1.06), (0.05, 0.95), fill=GREY)
    elif kind == "knight":
        f.blob((-0.09, 0.78), (-0.09, 0.92), (0, 0.98), (0.09, 0.92), (0.09, 0.78), fill=GREY)
        f.line((-0.02, 0.87), (0.09, 0.87), width=3)
        f.blob((0, 0.97), (-0.06, 1.06), (-0.14, 1.03), (-0.06, 0.99), fill=BLACK)
    elif kind == "doctor":
        f.oval(0.0, 0.955, 0.035, 0.035, fill=PALE)
        f.curve((-0.04, 0.76), (-0.03, 0.62), (0.03, 0.62), (0.04, 0.76), width=1.6)
        f.dot(0.0, 0.6, 0.022)
    elif kind == "old man with a beard":
        f.blob((-0.05, 0.84), (-0.05, 0.68), (0.03, 0.6), (0.08, 0.7), (0.08, 0.83))
        f.line((x, y), (x + 0.06, 0.0), width=2)
    elif kind == "child":
        f.line((x, y), (x + 0.02, y + 0.35), width=0.7)
        f.oval(x + 0.02, y + 0.42, 0.07, 0.085, fill=DARK)
