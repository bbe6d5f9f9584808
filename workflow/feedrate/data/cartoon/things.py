"""The things of the cartoons. A thing's frame has its origin on the ground, its height as unit; its
main surface has the frame's paint."""

import math
from collections.abc import Callable

from feedrate.data.cartoon.pen import BLACK, DARK, GREY, PALE, WHITE, Frame, ellipse


def _umbrella(f: Frame) -> None:
    f.line((0, 0.06), (0, 0.98), width=2)
    f.curve((0, 0.08), (0.05, 0.01), (0.12, 0.06), width=2)
    f.body_blob(
        (-0.5, 0.62),
        (-0.36, 0.86),
        (0, 0.98),
        (0.36, 0.86),
        (0.5, 0.62),
        (0.25, 0.68),
        (0, 0.62),
        (-0.25, 0.68),
    )
    for x in (-0.25, 0.0, 0.25):
        f.curve((x, 0.66), (x * 0.6, 0.86), (0, 0.98), width=0.8)


def _clock(f: Frame) -> None:
    f.shape((-0.22, 0), (0.22, 0), (0.14, 0.14), (-0.14, 0.14), fill=DARK)
    f.body(*ellipse(0, 0.56, 0.44, 0.44, 30))
    f.oval(0, 0.56, 0.35, 0.35)
    for k in range(12):
        x, y = math.sin(math.pi * k / 6), math.cos(math.pi * k / 6)
        f.line((0.29 * x, 0.56 + 0.29 * y), (0.33 * x, 0.56 + 0.33 * y), width=2)
    f.line((0, 0.56), (0.0, 0.8), width=2.6)
    f.line((0, 0.56), (0.18, 0.64), width=2.6)


def _piano(f: Frame) -> None:
    for x in (-0.55, 0.0, 0.5):
        f.line((x, 0.4), (x, 0.02), width=3)
    f.body_blob((-0.65, 0.4), (-0.62, 0.56), (0.3, 0.58), (0.66, 0.5), (0.64, 0.38))
    f.body((-0.3, 0.58), (0.6, 0.56), (0.62, 0.98), (0.1, 0.94))
    f.box(-0.8, 0.44, 0.22, 0.06)
    for k in range(5):
        f.line((-0.78 + 0.045 * k, 0.44), (-0.78 + 0.045 * k, 0.5), width=1.6)


def _safe(f: Frame) -> None:
    f.body((-0.4, 0.06), (0.4, 0.06), (0.4, 1), (-0.4, 1))
    f.box(-0.31, 0.15, 0.62, 0.76, fill=PALE)
    f.oval(0, 0.56, 0.16, 0.16)
    for k in range(6):
        x, y = math.sin(math.pi * k / 3), math.cos(math.pi * k / 3)
        f.line((0, 0.56), (0.2 * x, 0.56 + 0.2 * y), width=1.8)
    for x in (-0.32, 0.24):
        f.box(x, 0, 0.1, 0.06, fill=BLACK)


def _fish(f: Frame) -> None:
    f.body((-0.55, 0.5), (-0.95, 0.9), (-0.85, 0.5), (-0.95, 0.1))
    f.body_blob((-0.65, 0.5), (-0.2, 0.88), (0.4, 0.85), (0.8, 0.5), (0.4, 0.13), (-0.2, 0.12))
    f.shape((-0.15, 0.86), (0.05, 1.02), (0.25, 0.88), fill=GREY)
    f.curve((0.38, 0.8), (0.28, 0.5), (0.38, 0.2))
    f.oval(0.55, 0.6, 0.07, 0.08)
    f.dot(0.57, 0.6, 0.03)
    f.curve((0.78, 0.42), (0.65, 0.38), (0.55, 0.42))


def _cake(f: Frame) -> None:
    f.oval(0, 0.06, 0.6, 0.06)
    for x, y, w, h in ((-0.46, 0.06, 0.92, 0.3), (-0.34, 0.36, 0.68, 0.24), (-0.2, 0.6, 0.4, 0.18)):
        f.body((x, y), (x + w, y), (x + w, y + h), (x, y + h))
        top = [(x + w * k / 6, y + h - (0.06 if k % 2 else 0.0)) for k in range(7)]
        f.curve(*top, width=2, tone=WHITE)
    for x in (-0.1, 0.0, 0.1):
        f.line((x, 0.78), (x, 0.9), width=2)
        f.dot(x, 0.94, 0.022)


def _rocket(f: Frame) -> None:
    f.shape((-0.1, 0.14), (0.0, 0.0), (0.1, 0.14), fill=WHITE)
    for side in (-1, 1):
        f.shape((side * 0.14, 0.42), (side * 0.3, 0.12), (side * 0.12, 0.2), fill=DARK)
    f.body_blob(
        (-0.14, 0.14), (-0.18, 0.5), (-0.1, 0.82), (0, 1), (0.1, 0.82), (0.18, 0.5), (0.14, 0.14)
    )
    f.oval(0, 0.62, 0.075, 0.075)


def _television(f: Frame) -> None:
    for side in (-1, 1):
        f.line((side * 0.3, 0.14), (side * 0.4, 0), width=3)
        f.line((0, 0.86), (side * 0.22, 1.02), width=1.8)
    f.body((-0.62, 0.12), (0.62, 0.12), (0.62, 0.86), (-0.62, 0.86))
    f.blob((-0.5, 0.22), (-0.52, 0.76), (0.28, 0.76), (0.26, 0.22), width=1.4)
    f.hatch((-0.45, 0.3), (-0.46, 0.7), (0.22, 0.7), (0.2, 0.3), gap=9, angle=45)
    for y in (0.38, 0.6):
        f.oval(0.45, y, 0.06, 0.06)


def _bathtub(f: Frame) -> None:
    for x in (-0.7, 0.6):
        f.oval(x + 0.05, 0.06, 0.08, 0.06, fill=BLACK)
    f.body_blob((-1.0, 0.62), (-0.85, 0.2), (-0.4, 0.08), (0.4, 0.08), (0.85, 0.2), (1.0, 0.62))
    for k in range(9):
        f.oval(-0.8 + 0.2 * k, 0.68 + 0.05 * (k % 2), 0.14, 0.13)
    f.line((0.9, 0.62), (0.9, 0.98), (0.7, 0.98), (0.7, 0.88), width=3)


def _telephone(f: Frame) -> None:
    f.body((-0.6, 0), (0.6, 0), (0.4, 0.5), (-0.4, 0.5))
    f.oval(0, 0.26, 0.22, 0.19)
    f.oval(0, 0.26, 0.08, 0.07, fill=GREY)
    f.line((-0.2, 0.5), (-0.2, 0.64), width=3)
    f.line((0.2, 0.5), (0.2, 0.64), width=3)
    f.body_blob(
        (-0.75, 0.62),
        (-0.6, 0.9),
        (0, 0.98),
        (0.6, 0.9),
        (0.75, 0.62),
        (0.5, 0.62),
        (0, 0.78),
        (-0.5, 0.62),
    )


def _anchor(f: Frame) -> None:
    f.oval(0, 0.92, 0.09, 0.08, width=2.4)
    f.body_limb((0, 0.84), (0, 0.08), thick=0.1)
    f.body_limb((-0.26, 0.7), (0.26, 0.7), thick=0.08)
    f.body_blob(
        (-0.5, 0.38),
        (-0.34, 0.12),
        (0, 0.0),
        (0.34, 0.12),
        (0.5, 0.38),
        (0.26, 0.24),
        (0, 0.16),
        (-0.26, 0.24),
    )


def _door(f: Frame) -> None:
    f.box(-0.3, 0, 0.6, 1, width=2)
    f.body((-0.24, 0), (0.24, 0), (0.24, 0.94), (-0.24, 0.94))
    for y in (0.12, 0.52):
        f.box(-0.16, y, 0.32, 0.32, fill=PALE)
    f.dot(0.19, 0.46, 0.028, tone=WHITE)


def _guitar(f: Frame) -> None:
    f.body_blob(
        (-0.25, 0.05),
        (-0.3, 0.25),
        (-0.16, 0.38),
        (-0.2, 0.52),
        (0, 0.6),
        (0.2, 0.52),
        (0.16, 0.38),
        (0.3, 0.25),
        (0.25, 0.05),
        (0, 0),
    )
    f.limb((0, 0.45), (0, 0.92), thick=0.07, fill=DARK)
    f.box(-0.07, 0.9, 0.14, 0.1)
    f.oval(0, 0.4, 0.075, 0.07, fill=BLACK)
    for x in (-0.015, 0.015):
        f.line((x, 0.2), (x, 0.9), width=0.7)


def _hourglass(f: Frame) -> None:
    f.body((-0.36, 0), (0.36, 0), (0.36, 0.09), (-0.36, 0.09))
    f.body((-0.36, 0.91), (0.36, 0.91), (0.36, 1), (-0.36, 1))
    f.blob((-0.28, 0.09), (-0.24, 0.32), (-0.03, 0.5), (0.03, 0.5), (0.24, 0.32), (0.28, 0.09))
    f.blob((-0.28, 0.91), (-0.24, 0.68), (-0.03, 0.5), (0.03, 0.5), (0.24, 0.68), (0.28, 0.91))
    f.body((-0.24, 0.1), (0.24, 0.1), (0, 0.34))
    f.body((-0.2, 0.68), (0.2, 0.68), (0, 0.51))
    for side in (-1, 1):
        f.line((side * 0.33, 0.09), (side * 0.33, 0.91), width=2)


def _balloon(f: Frame) -> None:
    f.curve((0, 0.05), (0.05, 0.2), (-0.04, 0.32), (0, 0.45), width=1.2)
    f.body_blob((0, 0.44), (-0.26, 0.62), (-0.24, 0.9), (0, 1.0), (0.24, 0.9), (0.26, 0.62))
    f.curve((-0.15, 0.84), (-0.11, 0.92), (-0.04, 0.94), tone=WHITE, width=2.4)


def _ladder(f: Frame) -> None:
    for x in (-0.17, 0.13):
        f.body_limb((x, 0), (x + 0.04, 1), thick=0.05)
    for k in range(8):
        f.body_limb((-0.17, 0.1 + 0.11 * k), (0.15, 0.1 + 0.11 * k), thick=0.035)


THINGS: dict[str, Callable[[Frame], None]] = {
    "umbrella": _umbrella,
    "clock": _clock,
    "grand piano": _piano,
    "safe": _safe,
    "fish": _fish,
    "cake": _cake,
    "rocket": _rocket,
    "television": _television,
    "bathtub": _bathtub,
    "telephone": _telephone,
    "anchor": _anchor,
    "door": _door,
    "guitar": _guitar,
    "hourglass": _hourglass,
    "balloon": _balloon,
    "ladder": _ladder,
}
"""Things by name."""

HALF_WIDTHS = {
    "grand piano": 0.75,
    "television": 0.68,
    "fish": 0.9,
    "bathtub": 1.0,
    "telephone": 0.75,
}
"""Half the width of the wide things, in their own heights; the others stay within 0.6."""
