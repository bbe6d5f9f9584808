"""Paints, things, figures and places of the generated pictures. A shape is a list of polygons in a
unit square: x from -0.5 to 0.5, y from 0 (the ground) to 1."""

import math
from collections.abc import Sequence
from typing import NamedTuple

Points = Sequence[tuple[float, float]]


class Paint(NamedTuple):
    """The fill of a polygon."""

    rgb: tuple[int, int, int]
    striped: bool = False


class Part(NamedTuple):
    """One polygon; without a paint of its own it has that of the scene."""

    points: Points
    paint: Paint | None = None


Shape = Sequence[Part]

BLACK, DARK, GREY = Paint((22, 22, 24)), Paint((92, 92, 94)), Paint((158, 158, 160))
PALE, WHITE, STRIPED = Paint((212, 212, 212)), Paint((255, 255, 255)), Paint((224, 224, 224), True)
INKS = {"black": BLACK, "white": WHITE, "grey": GREY, "striped": STRIPED}
_RGB = {
    **{"red": (214, 64, 52), "blue": (66, 112, 192), "green": (84, 158, 88)},
    **{"yellow": (242, 200, 70), "orange": (234, 138, 56), "purple": (134, 92, 164)},
}
COLOURS = {name: Paint(rgb) for name, rgb in _RGB.items()}
PAINTS = INKS | COLOURS


def _polygon(*numbers: float, paint: Paint | None = None) -> Part:
    return Part(list(zip(numbers[::2], numbers[1::2], strict=True)), paint)


def box(x: float, y: float, width: float, height: float, paint: Paint | None = None) -> Part:
    """A rectangle; `x` is its centre, `y` its lower edge."""
    left, right, top = x - width / 2, x + width / 2, y + height
    return Part([(left, y), (right, y), (right, top), (left, top)], paint)


def _oval(
    x: float, y: float, rx: float, ry: float, paint: Paint | None = None, steps: int = 24
) -> Part:
    """An ellipse, or with 12 steps its upper half."""
    angles = [math.pi * k / 12 for k in range(steps + 1)]
    return Part([(x + rx * math.cos(a), y + ry * math.sin(a)) for a in angles], paint)


def _two(x: float, y: float, rx: float, ry: float, paint: Paint) -> Shape:
    """A pair of ovals, such as eyes."""
    return [_oval(-x, y, rx, ry, paint), _oval(x, y, rx, ry, paint)]


_STAR = [((0.52, 0.22)[k % 2], math.pi * (0.5 + k / 5)) for k in range(10)]
_GHOST_HEM = ((-0.4, 0), (-0.2, 0.1), (0, 0), (0.2, 0.1), (0.4, 0))

# fmt: off
THINGS: dict[str, Shape] = {
    "arrow": [_polygon(-0.15, 0, 0.15, 0, 0.15, 0.5, 0.42, 0.5, 0, 1, -0.42, 0.5, -0.15, 0.5)],
    "balloon": [box(0, 0, 0.02, 0.4, BLACK), _oval(0, 0.68, 0.29, 0.32)],
    "boat": [_polygon(-0.32, 0, 0.32, 0, 0.5, 0.28, -0.5, 0.28), box(0, 0.28, 0.05, 0.72, BLACK),
             _polygon(0.05, 0.36, 0.45, 0.36, 0.05, 0.96),
             _polygon(-0.05, 0.36, -0.05, 0.8, -0.35, 0.36, paint=WHITE)],
    "clock": [_oval(0, 0.5, 0.5, 0.5), _oval(0, 0.5, 0.36, 0.36, WHITE),
              box(0, 0.48, 0.06, 0.32, BLACK), box(0.1, 0.47, 0.24, 0.06, BLACK)],
    "house": [box(0, 0, 0.8, 0.56), _polygon(-0.5, 0.56, 0.5, 0.56, 0, 1, paint=DARK),
              box(-0.18, 0, 0.2, 0.38, WHITE), box(0.18, 0.2, 0.22, 0.2, WHITE)],
    "kite": [_polygon(0, 0, 0.4, 0.62, 0, 1, -0.4, 0.62), box(0, 0, 0.03, 1, BLACK)],
    "mushroom": [box(0, 0, 0.26, 0.5, WHITE), _oval(0, 0.45, 0.5, 0.54, steps=12),
                 *_two(0.24, 0.6, 0.07, 0.07, WHITE), _oval(0.02, 0.8, 0.08, 0.08, WHITE)],
    "star": [Part([(r * math.cos(a), 0.48 + r * math.sin(a)) for r, a in _STAR])],
    "umbrella": [box(0, 0, 0.05, 0.6, BLACK), _oval(0, 0.55, 0.5, 0.44, steps=12)],
}

FIGURES: dict[str, Shape] = {
    "cat": [_polygon(-0.32, 0, 0.32, 0, 0.14, 0.6, -0.14, 0.6, paint=BLACK),
            _polygon(0.24, 0, 0.5, 0.1, 0.46, 0.5, 0.4, 0.5, 0.4, 0.14, paint=BLACK),
            _polygon(-0.26, 0.7, -0.26, 1, 0, 0.8, 0.26, 1, 0.26, 0.7, paint=BLACK),
            _oval(0, 0.7, 0.26, 0.2, BLACK), *_two(0.11, 0.74, 0.07, 0.06, WHITE)],
    "ghost": [Part([*_oval(0, 0.6, 0.34, 0.38, steps=12).points, *_GHOST_HEM], PALE),
              *_two(0.13, 0.66, 0.07, 0.09, BLACK), _oval(0, 0.42, 0.08, 0.1, BLACK)],
    "penguin": [*_two(0.18, 0.03, 0.14, 0.03, GREY), _oval(0, 0.44, 0.32, 0.4, BLACK),
                _oval(0, 0.4, 0.2, 0.32, WHITE), _oval(0, 0.84, 0.18, 0.16, BLACK),
                *_two(0.07, 0.87, 0.045, 0.05, WHITE),
                _polygon(-0.06, 0.82, 0.06, 0.82, 0, 0.7, paint=GREY)],
    "rabbit": [_oval(0, 0.26, 0.3, 0.26, WHITE), *_two(0.1, 0.82, 0.07, 0.18, WHITE),
               _oval(0, 0.56, 0.2, 0.17, WHITE), *_two(0.08, 0.6, 0.03, 0.04, BLACK),
               _oval(0, 0.52, 0.04, 0.03, BLACK)],
    "robot": [box(0, 0, 0.48, 0.22, DARK), box(0, 0.36, 0.92, 0.16, DARK),
              box(0, 0.2, 0.64, 0.44, GREY), box(0, 0.3, 0.36, 0.2, WHITE),
              box(0, 0.66, 0.44, 0.28, GREY), *_two(0.11, 0.81, 0.06, 0.06, WHITE)],
    "witch": [_polygon(-0.4, 0, 0.4, 0, 0.12, 0.52, -0.12, 0.52, paint=BLACK),
              _oval(0, 0.58, 0.13, 0.14, WHITE), _oval(0, 0.68, 0.3, 0.05, BLACK),
              _polygon(-0.16, 0.68, 0.16, 0.68, 0.04, 1, paint=BLACK),
              *_two(0.05, 0.6, 0.02, 0.03, BLACK)],
}
# fmt: on


class Motif(NamedTuple):
    """Copies of a shape in rows; every second row is shifted by half a column. Lengths are in
    picture heights, `columns` is per picture height. Copies vary at random by the share `scatter`
    in size, and of a column or row in place."""

    shape: Shape
    columns: float
    rows: int
    bottom: float
    top: float
    width: float
    height: float
    scatter: float = 0.0


class Place(NamedTuple):
    """The scenery of a picture: a wall or sky above a floor or ground, with motifs on them."""

    name: str
    preposition: str
    wall: Paint
    floor: Paint
    horizon: float
    motifs: Sequence[Motif]


_BRICK, _BAR, _CURTAIN = ([box(0, 0, 1, 1, paint)] for paint in (GREY, BLACK, DARK))
_BUBBLE, _MOUND = [_oval(0, 0.5, 0.5, 0.5, WHITE)], [_oval(0, 0, 0.5, 1, PALE, steps=12)]
# fmt: off
_TREE = [box(0, 0, 0.14, 0.3, DARK), _polygon(-0.5, 0.2, 0.5, 0.2, 0, 0.7, paint=GREY),
         _polygon(-0.36, 0.5, 0.36, 0.5, 0, 1, paint=STRIPED)]
_TOWER = [box(0, 0, 1, 1, PALE),
          *[box(x, 0.07 + 0.15 * k, 0.18, 0.08, DARK) for x in (-0.27, 0, 0.27) for k in range(6)]]
_PEAK = [_polygon(-0.5, 0, 0.5, 0, 0, 1, paint=GREY), _polygon(0.1, 0, 0.5, 0, 0, 1, paint=STRIPED),
         _polygon(-0.12, 0.76, -0.04, 0.82, 0.02, 0.74, 0.12, 0.76, 0, 1, paint=WHITE)]
_BOOK_PAINTS = (GREY, PALE, BLACK, WHITE, GREY, DARK, PALE)
_BOOKS = [box(0, 0, 1, 0.06, DARK),
          *[box(0.14 * k - 0.42, 0.06, 0.12, 0.9 - 0.1 * (k % 4), paint)
            for k, paint in enumerate(_BOOK_PAINTS)]]
# fmt: on
_SKY = [Motif(_BUBBLE, 9, 8, 0.38, 1, 0.016, 0.016, 0.9), Motif(_MOUND, 3, 3, 0, 0.3, 0.2, 0.03, 1)]
_CELL = [Motif(_BRICK, 6, 10, 0.22, 1, 0.16, 0.078), Motif(_BAR, 6, 1, 0.22, 0.22, 0.02, 0.8)]
_DRAPES = [Motif(_CURTAIN, 0, 1, 0.1, 0.1, 0.3, 0.9), Motif(_MOUND, 5, 1, 0.9, 0.9, 0.3, 0.2)]

PLACES = (
    Place("a forest", "in", WHITE, PALE, 0.3, [Motif(_TREE, 5, 1, 0.24, 0.24, 0.34, 0.7, 0.3)]),
    Place("a street", "on", WHITE, PALE, 0.26, [Motif(_TOWER, 4, 1, 0.26, 0.26, 0.24, 0.5, 0.4)]),
    Place("a mountain", "on", WHITE, WHITE, 0.24, [Motif(_PEAK, 2, 1, 0.24, 0.24, 0.8, 0.6, 0.3)]),
    Place("the moon", "on", DARK, PALE, 0.34, _SKY),
    Place("the sea bed", "on", GREY, PALE, 0.2, [Motif(_BUBBLE, 5, 5, 0.3, 1, 0.06, 0.06, 0.7)]),
    Place("a prison", "in", GREY, DARK, 0.22, _CELL),
    Place("a library", "in", WHITE, GREY, 0.2, [Motif(_BOOKS, 3.6, 3, 0.22, 0.97, 0.28, 0.24)]),
    Place("a stage", "on", WHITE, PALE, 0.24, _DRAPES),
)
