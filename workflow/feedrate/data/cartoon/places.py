"""The places of the cartoons. A place's frame has its origin at the lower left corner and the
picture's height as unit; the figures stand on y = GROUND."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from feedrate.data.cartoon.pen import BLACK, DARK, GREY, PALE, WHITE, Frame, Rgb, ellipse

GROUND = 0.16
"""Where the figures' feet are, in picture heights."""


@dataclass(frozen=True)
class Setting:
    """What a place is drawn with: `wide` is the picture's width in picture heights."""

    f: Frame
    wide: float
    sky: Rgb
    rng: Random


@dataclass(frozen=True)
class Place:
    """A place: how it is named, with its preposition, and how it is drawn."""

    name: str
    where: str
    draw: Callable[[Setting], None]
    shows_sky: bool = True


def _backdrop(s: Setting, wall: Rgb, floor: Rgb, horizon: float) -> None:
    """A wall (or sky) above a floor (or ground)."""
    s.f.pen.fill(s.f.to_paper([(0, 0), (s.wide, 0), (s.wide, 1), (0, 1)]), wall)
    s.f.pen.fill(s.f.to_paper([(0, 0), (s.wide, 0), (s.wide, horizon), (0, horizon)]), floor)
    s.f.line((0, horizon), (s.wide, horizon))


def _moon_or_sun(s: Setting, x: float) -> None:
    s.f.oval(x, 0.84, 0.07, 0.07)
    if s.sky == WHITE:
        for k in range(8):
            (ax, ay), (bx, by) = (
                ellipse(x, 0.84, r, r, corners=8)[k] for r in (0.085, 0.12 + 0.02 * (k % 2))
            )
            s.f.line((ax, ay), (bx, by))


def _window(s: Setting, x: float, y: float, w: float, h: float) -> None:
    s.f.box(x, y, w, h, fill=s.sky, width=1.4)
    s.f.line((x + w / 2, y), (x + w / 2, y + h))
    s.f.line((x, y + h / 2), (x + w, y + h / 2))


def _office(s: Setting) -> None:
    _backdrop(s, PALE, WHITE, 0.3)
    _window(s, 0.1 * s.wide, 0.5, 0.3 * s.wide, 0.36)
    for k in range(5):
        x = s.wide * (0.11 + 0.056 * k)
        s.f.box(x, 0.5, 0.05 * s.wide, 0.08 + 0.2 * s.rng.random(), fill=DARK)
    s.f.box(0.6 * s.wide, 0.52, 0.3 * s.wide, 0.28, width=1.4)
    chart = [(0.63, 0.58), (0.68, 0.66), (0.73, 0.62), (0.79, 0.7), (0.87, 0.55)]
    s.f.line(*[(x * s.wide, y) for x, y in chart], width=2.2)
    s.f.box(0.32 * s.wide, 0.22, 0.4 * s.wide, 0.17, fill=GREY, width=1.2)
    s.f.box(0.3 * s.wide, 0.38, 0.44 * s.wide, 0.03, fill=DARK)
    s.f.box(0.38 * s.wide, 0.41, 0.1 * s.wide, 0.1, fill=WHITE)


def _living_room(s: Setting) -> None:
    _backdrop(s, WHITE, GREY, 0.28)
    for k in range(14):
        x = s.wide * (k + 0.5) / 14
        s.f.line((x, 0.28), (x, 1), width=0.5, tone=GREY)
    s.f.box(0.38 * s.wide, 0.62, 0.24 * s.wide, 0.24, width=1.8)
    s.f.blob(
        *[(x * s.wide, y) for x, y in [(0.41, 0.66), (0.46, 0.76), (0.5, 0.7), (0.58, 0.66)]],
        fill=DARK,
    )
    s.f.blob(
        *[(x * s.wide, y) for x, y in [(0.24, 0.2), (0.23, 0.48), (0.5, 0.52), (0.77, 0.48)]],
        (0.76 * s.wide, 0.2),
        fill=PALE,
        width=1.4,
    )
    s.f.line((0.27 * s.wide, 0.33), (0.73 * s.wide, 0.33))
    s.f.line((0.9 * s.wide, 0.2), (0.9 * s.wide, 0.68), width=1.6)
    w = s.wide
    s.f.shape((0.83 * w, 0.66), (0.97 * w, 0.66), (0.93 * w, 0.82), (0.87 * w, 0.82), fill=PALE)
    s.f.oval(0.5 * w, 0.11, 0.36 * w, 0.07, fill=PALE)


def _desert_island(s: Setting) -> None:
    _backdrop(s, s.sky, DARK, 0.42)
    for k in range(34):
        x, y = s.wide * s.rng.random(), 0.02 + 0.38 * s.rng.random()
        s.f.curve((x, y), (x + 0.03, y + 0.012), (x + 0.06, y), (x + 0.09, y + 0.012), tone=PALE)
        if k % 3 == 0:
            s.f.line((x, y - 0.02), (x + 0.1, y - 0.02), width=0.7, tone=WHITE)
    s.f.blob((0.02, 0.04), (0.25, 0.2), (0.5 * s.wide, 0.24), (s.wide - 0.25, 0.2), (s.wide, 0.04))
    x = s.wide * 0.5
    s.f.limb((x, 0.2), (x + 0.03, 0.45), (x - 0.02, 0.72), thick=0.045, fill=GREY)
    for dx, dy in [(0.24, 0.02), (0.18, 0.14), (0.02, 0.2), (-0.18, 0.13), (-0.25, 0.0)]:
        s.f.blob((x - 0.02, 0.72), (x + dx * 0.6, 0.76 + dy), (x + dx, 0.68 + dy * 0.6), fill=BLACK)
    _moon_or_sun(s, 0.15 * s.wide)


def _street(s: Setting) -> None:
    _backdrop(s, s.sky, PALE, 0.26)
    x = 0.0
    while x < s.wide:
        width, height = 0.2 + 0.18 * s.rng.random(), 0.3 + 0.36 * s.rng.random()
        tone = s.rng.choice([WHITE, PALE, GREY])
        s.f.box(x, 0.26, width, height, fill=tone, width=1.2)
        lit = BLACK if s.sky == WHITE else WHITE
        for row in range(int(height / 0.11)):
            for column in range(3):
                s.f.box(x + width * (0.12 + 0.29 * column), 0.31 + 0.1 * row, 0.045, 0.06, fill=lit)
        x += width
    s.f.line((0, 0.1), (s.wide, 0.06), width=2.4)
    s.f.line((0.93 * s.wide, 0.12), (0.93 * s.wide, 0.78), width=2.6)
    s.f.oval(0.93 * s.wide, 0.81, 0.04, 0.05)


def _forest(s: Setting) -> None:
    _backdrop(s, s.sky, PALE, 0.34)
    for k in range(9):
        x = s.wide * (k + 0.2 + 0.6 * s.rng.random()) / 9
        base, top = 0.2 + 0.14 * s.rng.random(), 0.72 + 0.26 * s.rng.random()
        s.f.limb((x, base), (x, top - 0.2), thick=0.05, fill=DARK)
        for level in range(3):
            y, half = base + 0.14 + 0.17 * level, 0.15 - 0.035 * level
            tree = [(x - half, y), (x, y + 0.27), (x + half, y)]
            s.f.shape(*tree, fill=WHITE if k % 2 else GREY)
            s.f.hatch(*tree, gap=6, angle=70)
    for _ in range(40):
        x, y = s.wide * s.rng.random(), 0.22 * s.rng.random()
        s.f.line((x, y), (x + 0.01, y + 0.035), width=0.7)


def _desert(s: Setting) -> None:
    _backdrop(s, s.sky, WHITE, 0.36)
    w = s.wide
    s.f.blob((-0.2, 0.2), (0.2 * w, 0.46), (0.5 * w, 0.35), (0.6 * w, 0.1), fill=PALE)
    s.f.blob((0.45 * w, 0.1), (0.75 * w, 0.44), (1.1 * w, 0.34), (1.1 * w, 0.1), fill=PALE)
    for x, size in ((0.12 * w, 1.0), (0.85 * w, 0.75)):
        top = 0.3 + 0.36 * size
        s.f.limb((x, 0.28), (x, top), thick=0.07 * size, fill=GREY)
        arm = [(x, 0.42), (x + 0.1 * size, 0.44), (x + 0.1 * size, 0.44 + 0.16 * size)]
        s.f.limb(*arm, thick=0.05 * size, fill=GREY)
        s.f.hatch(
            (x - 0.03, 0.28), (x + 0.03, 0.28), (x + 0.03, top), (x - 0.03, top), gap=6, angle=90
        )
    for _ in range(60):
        s.f.dot(w * s.rng.random(), 0.25 * s.rng.random(), 0.004)
    _moon_or_sun(s, 0.55 * w)


def _kitchen(s: Setting) -> None:
    _backdrop(s, WHITE, WHITE, 0.28)
    w = s.wide
    for row in range(4):
        for column in range(12):
            if (row + column) % 2:
                s.f.box(w * column / 12, 0.07 * row, w / 12, 0.07, fill=DARK, width=0.6)
    s.f.box(0.02 * w, 0.2, 0.22 * w, 0.62, fill=PALE, width=1.6)
    s.f.line((0.02 * w, 0.58), (0.24 * w, 0.58))
    s.f.line((0.21 * w, 0.4), (0.21 * w, 0.52), width=2.4)
    s.f.box(0.28 * w, 0.26, 0.7 * w, 0.2, fill=GREY, width=1.2)
    for k in range(5):
        s.f.box(0.28 * w + 0.14 * w * k, 0.72, 0.13 * w, 0.2, width=1.2)
        s.f.dot(0.3 * w + 0.14 * w * k, 0.75, 0.008)
    s.f.box(0.27 * w, 0.45, 0.72 * w, 0.03)
    for k in range(3):
        s.f.box(0.62 * w + 0.1 * w * k, 0.48, 0.07 * w, 0.08 + 0.02 * k, fill=BLACK)


def _cell(s: Setting) -> None:
    _backdrop(s, GREY, DARK, 0.24)
    for row in range(11):
        y = 0.24 + 0.07 * row
        s.f.line((0, y), (s.wide, y), width=0.8)
        x = 0.08 * (row % 2)
        while x < s.wide:
            s.f.line((x, y), (x, y + 0.07), width=0.8)
            x += 0.16
    s.f.box(0.38 * s.wide, 0.62, 0.24 * s.wide, 0.26, fill=s.sky, width=2)
    for k in range(1, 6):
        x = 0.38 * s.wide + 0.04 * s.wide * k
        s.f.line((x, 0.62), (x, 0.88), width=3.2)
    s.f.box(0.05 * s.wide, 0.3, 0.4 * s.wide, 0.05, fill=WHITE, width=1.4)
    s.f.line((0.07 * s.wide, 0.3), (0.07 * s.wide, 0.2), width=2)


def _moon(s: Setting) -> None:
    _backdrop(s, BLACK, PALE, 0.36)
    for _ in range(70):
        s.f.dot(s.wide * s.rng.random(), 0.38 + 0.6 * s.rng.random(), 0.003, tone=WHITE)
    for _ in range(9):
        x, y = s.wide * s.rng.random(), 0.04 + 0.28 * s.rng.random()
        s.f.oval(x, y, 0.05 + 0.08 * s.rng.random(), 0.015 + 0.02 * s.rng.random(), fill=GREY)
    x = 0.5 * s.wide
    s.f.oval(x, 0.8, 0.12, 0.12)
    s.f.blob((x - 0.08, 0.8), (x - 0.02, 0.87), (x + 0.02, 0.8), (x - 0.03, 0.73), fill=GREY)


def _stage(s: Setting) -> None:
    w = s.wide
    _backdrop(s, WHITE if s.sky == WHITE else GREY, PALE, 0.26)
    for k in range(12):
        s.f.line((w * k / 11, 0), (0.5 * w + (k / 11 - 0.5) * 0.7 * w, 0.26), width=0.8)
    for side in (0.0, 1.0):
        inner = 0.2 * w if side == 0 else 0.8 * w
        edge = side * w
        s.f.shape((edge, 0.1), (inner, 0.12), (inner, 0.9), (edge, 1), fill=DARK, width=1.4)
        s.f.hatch((edge, 0.1), (inner, 0.12), (inner, 0.9), (edge, 1), gap=10, angle=90, width=1.6)
    for k in range(6):
        s.f.blob((w * k / 6, 1.02), (w * (k + 0.5) / 6, 0.84), (w * (k + 1) / 6, 1.02), fill=DARK)


def _sea_bed(s: Setting) -> None:
    _backdrop(s, GREY, PALE, 0.2)
    w = s.wide
    for k in range(8):
        x = w * (k + s.rng.random()) / 8
        wave = [(x + (0.03 if i % 2 else -0.03), 0.12 + 0.08 * i) for i in range(4 + k % 4)]
        s.f.curve(*wave, width=3.4)
    for _ in range(26):
        r = 0.008 + 0.02 * s.rng.random()
        s.f.oval(w * s.rng.random(), 0.3 + 0.65 * s.rng.random(), r, r)
    for _ in range(5):
        x, y = w * s.rng.random(), 0.5 + 0.45 * s.rng.random()
        s.f.shape((x - 0.04, y), (x - 0.07, y + 0.025), (x - 0.07, y - 0.025), fill=WHITE)
        s.f.oval(x, y, 0.045, 0.022)
    s.f.curve((0, 0.95), (0.25 * w, 0.975), (0.5 * w, 0.95), (0.75 * w, 0.975), (w, 0.95), width=2)


def _mountain(s: Setting) -> None:
    _backdrop(s, s.sky, WHITE, 0.22)
    w = s.wide
    for x, top, half in ((0.2 * w, 0.82, 0.42), (0.78 * w, 0.9, 0.46), (0.5 * w, 0.66, 0.3)):
        peak = [(x - half, 0.2), (x, top), (x + half, 0.2)]
        s.f.shape(*peak, fill=GREY, width=1.6)
        s.f.hatch((x, top), (x + half, 0.2), (x + 0.05, 0.2), gap=7, angle=-60)
        snow = [(x, top), (x + 0.12, top - 0.2), (x + 0.03, top - 0.14), (x - 0.04, top - 0.2)]
        s.f.shape(*snow, (x - 0.1, top - 0.15))
    for _ in range(60):
        s.f.dot(w * s.rng.random(), s.rng.random(), 0.006, tone=PALE)


def _classroom(s: Setting) -> None:
    _backdrop(s, PALE, GREY, 0.24)
    w = s.wide
    s.f.box(0.18 * w, 0.46, 0.64 * w, 0.4, fill=BLACK, width=2)
    s.f.line((0.25 * w, 0.78), (0.5 * w, 0.78), width=1.4, tone=WHITE)
    s.f.line((0.25 * w, 0.7), (0.42 * w, 0.7), width=1.4, tone=WHITE)
    s.f.oval(0.66 * w, 0.7, 0.08, 0.08, fill=BLACK)
    s.f.curve((0.58 * w, 0.56), (0.66 * w, 0.62), (0.74 * w, 0.54), width=1.6, tone=WHITE)
    s.f.line((0.54 * w, 0.74), (0.77 * w, 0.74), width=1.4, tone=WHITE)
    for k in range(4):
        x = w * (0.06 + 0.25 * k)
        s.f.box(x, 0.12, 0.14 * w, 0.03, fill=WHITE)
        s.f.line((x + 0.02, 0.12), (x + 0.02, 0.02), width=1.4)
        s.f.line((x + 0.13 * w, 0.12), (x + 0.13 * w, 0.02), width=1.4)


PLACES = (
    Place("an office", "in an office", _office),
    Place("a living room", "in a living room", _living_room, shows_sky=False),
    Place("a desert island", "on a desert island", _desert_island),
    Place("a city street", "on a city street", _street),
    Place("a forest", "in a forest", _forest),
    Place("a desert", "in a desert", _desert),
    Place("a kitchen", "in a kitchen", _kitchen, shows_sky=False),
    Place("a prison cell", "in a prison cell", _cell),
    Place("the moon", "on the moon", _moon, shows_sky=False),
    Place("a theatre stage", "on a theatre stage", _stage),
    Place("the sea bed", "on the sea bed", _sea_bed, shows_sky=False),
    Place("a mountain", "on a mountain", _mountain),
    Place("a classroom", "in a classroom", _classroom, shows_sky=False),
)
