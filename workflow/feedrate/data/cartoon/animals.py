"""The animals of the cartoons. An animal's frame has its origin on the ground, its height as unit,
and the animal faces right."""

from collections.abc import Callable

from feedrate.data.cartoon.pen import BLACK, DARK, GREY, PALE, WHITE, Frame, Rgb


def _legs(f: Frame, xs: tuple[float, ...], top: float, thick: float, fill: Rgb) -> None:
    for x in xs:
        f.limb((x, top), (x, 0.02), thick=thick, fill=fill)
        f.oval(x + 0.02, 0.02, thick * 0.75, 0.025, fill=fill)


def _eye(f: Frame, x: float, y: float, size: float = 0.03) -> None:
    f.oval(x, y, size, size * 1.2)
    f.dot(x + size * 0.35, y, size * 0.45)


def _dog(f: Frame) -> None:
    f.curve((-0.42, 0.5), (-0.6, 0.62), (-0.62, 0.85), width=3)
    _legs(f, (-0.34, -0.22, 0.2, 0.32), 0.35, 0.09, WHITE)
    f.blob((-0.45, 0.5), (-0.3, 0.62), (0.25, 0.6), (0.42, 0.45), (0.2, 0.27), (-0.35, 0.28))
    f.blob((-0.2, 0.6), (0.0, 0.6), (-0.02, 0.4), (-0.22, 0.42), fill=DARK)
    f.blob(
        (0.2, 0.6),
        (0.22, 0.92),
        (0.45, 0.97),
        (0.56, 0.8),
        (0.78, 0.76),
        (0.76, 0.62),
        (0.45, 0.58),
    )
    f.blob((0.22, 0.94), (0.1, 0.9), (0.1, 0.6), (0.24, 0.66), fill=BLACK)
    f.dot(0.77, 0.74, 0.05)
    _eye(f, 0.46, 0.84)


def _cat(f: Frame) -> None:
    f.curve((-0.3, 0.12), (-0.6, 0.1), (-0.62, 0.45), (-0.5, 0.6), width=4)
    f.blob(
        (-0.32, 0.05), (-0.3, 0.4), (-0.1, 0.62), (0.15, 0.6), (0.28, 0.3), (0.28, 0.03), fill=BLACK
    )
    f.shape((-0.2, 0.8), (-0.17, 1.02), (-0.02, 0.9), fill=BLACK)
    f.shape((0.08, 0.9), (0.24, 1.02), (0.26, 0.8), fill=BLACK)
    f.oval(0.03, 0.76, 0.24, 0.19, fill=BLACK)
    _eye(f, -0.05, 0.79, 0.055)
    _eye(f, 0.12, 0.79, 0.055)
    for y in (0.66, 0.7):
        f.line((0.12, y), (0.4, y + 0.03), width=0.7, tone=GREY)
        f.line((-0.06, y), (-0.34, y + 0.03), width=0.7, tone=GREY)


def _giraffe(f: Frame) -> None:
    _legs(f, (-0.2, -0.12, 0.08, 0.15), 0.34, 0.04, WHITE)
    f.line((-0.24, 0.42), (-0.3, 0.24), width=1.6)
    f.blob((-0.25, 0.36), (-0.2, 0.46), (0.1, 0.52), (0.2, 0.42), (0.12, 0.3), (-0.18, 0.3))
    f.limb((0.08, 0.44), (0.15, 0.65), (0.18, 0.88), thick=0.085)
    f.blob((0.12, 0.88), (0.14, 0.97), (0.24, 0.96), (0.36, 0.88), (0.34, 0.83), (0.2, 0.84))
    for x in (0.14, 0.19):
        f.line((x, 0.95), (x - 0.01, 1.03), width=1.6)
        f.dot(x - 0.01, 1.03, 0.014)
    patches = [(-0.16, 0.4), (-0.05, 0.36), (0.03, 0.44), (0.1, 0.38), (-0.08, 0.45)]
    for x, y in [*patches, (0.11, 0.53), (0.14, 0.61), (0.16, 0.7), (0.17, 0.79)]:
        f.blob((x - 0.03, y), (x, y + 0.033), (x + 0.03, y + 0.005), (x, y - 0.03), fill=DARK)
    _eye(f, 0.22, 0.925, 0.014)


def _elephant(f: Frame) -> None:
    _legs(f, (-0.42, -0.24, 0.12, 0.28), 0.4, 0.17, GREY)
    f.curve((-0.6, 0.6), (-0.68, 0.45), (-0.66, 0.3), width=2)
    f.blob(
        (-0.6, 0.5),
        (-0.5, 0.85),
        (-0.1, 0.98),
        (0.3, 0.88),
        (0.4, 0.5),
        (0.1, 0.3),
        (-0.45, 0.3),
        fill=GREY,
    )
    f.limb((0.62, 0.7), (0.78, 0.5), (0.78, 0.25), (0.88, 0.12), thick=0.13, fill=GREY)
    f.oval(0.48, 0.75, 0.24, 0.22, fill=GREY)
    f.blob((0.4, 0.9), (0.16, 0.95), (0.06, 0.7), (0.2, 0.5), (0.4, 0.6), fill=PALE)
    f.blob((0.6, 0.55), (0.78, 0.44), (0.9, 0.5), (0.72, 0.52))
    f.hatch((-0.5, 0.35), (0.1, 0.35), (0.1, 0.5), (-0.55, 0.55), gap=6, angle=30)
    _eye(f, 0.56, 0.8)


def _penguin(f: Frame) -> None:
    for x in (-0.12, 0.12):
        f.blob((x - 0.1, 0.01), (x, 0.07), (x + 0.14, 0.01), fill=GREY)
    f.blob(
        (-0.27, 0.1),
        (-0.28, 0.55),
        (-0.12, 0.92),
        (0.1, 0.94),
        (0.28, 0.6),
        (0.27, 0.1),
        fill=BLACK,
    )
    f.blob((-0.1, 0.08), (-0.12, 0.5), (0.04, 0.72), (0.2, 0.5), (0.19, 0.08))
    f.shape((0.14, 0.86), (0.32, 0.8), (0.14, 0.78), fill=GREY)
    f.blob((-0.2, 0.6), (-0.38, 0.3), (-0.32, 0.26), (-0.18, 0.4), fill=BLACK)
    _eye(f, 0.07, 0.85, 0.04)


def _octopus(f: Frame) -> None:
    for k in range(6):
        x = -0.35 + 0.14 * k
        f.limb(
            (x * 0.6, 0.42), (x * 1.4, 0.2), (x * 1.7, 0.1), (x * 2.2, 0.16), thick=0.07, fill=PALE
        )
    f.blob(
        (-0.32, 0.4), (-0.4, 0.75), (-0.15, 1.0), (0.15, 1.0), (0.4, 0.75), (0.32, 0.4), fill=PALE
    )
    _eye(f, -0.1, 0.62, 0.08)
    _eye(f, 0.15, 0.62, 0.08)
    f.curve((-0.08, 0.45), (0.02, 0.41), (0.14, 0.45))
    for x, y in ((-0.2, 0.82), (0.0, 0.9), (0.2, 0.82)):
        f.oval(x, y, 0.035, 0.025, fill=GREY)


def _rabbit(f: Frame) -> None:
    f.oval(-0.3, 0.16, 0.09, 0.08)
    f.blob((-0.28, 0.04), (-0.3, 0.3), (-0.08, 0.48), (0.18, 0.35), (0.22, 0.04))
    f.blob((-0.24, 0.02), (-0.15, 0.2), (0.04, 0.14), (0.06, 0.02))
    for x in (0.0, 0.14):
        f.blob((x, 0.62), (x - 0.1, 0.95), (x - 0.02, 1.02), (x + 0.07, 0.66))
        f.line((x + 0.01, 0.7), (x - 0.04, 0.92), width=2, tone=GREY)
    f.oval(0.1, 0.56, 0.17, 0.14)
    f.dot(0.26, 0.56, 0.022)
    _eye(f, 0.14, 0.6, 0.035)


def _snail(f: Frame) -> None:
    f.blob(
        (-0.75, 0.02),
        (-0.3, 0.16),
        (0.4, 0.2),
        (0.6, 0.6),
        (0.78, 0.62),
        (0.74, 0.25),
        (0.5, 0.02),
        fill=PALE,
    )
    f.oval(-0.1, 0.55, 0.45, 0.43, fill=GREY, width=1.5)
    for scale in (0.74, 0.5, 0.26):
        f.oval(-0.06, 0.53, 0.44 * scale, 0.42 * scale, fill=WHITE if scale == 0.5 else GREY)
    for x in (0.6, 0.74):
        f.line((x, 0.6), (x + 0.06, 0.9), width=1.6)
        f.dot(x + 0.06, 0.92, 0.045)


def _crocodile(f: Frame) -> None:
    _legs(f, (-0.6, -0.3, 0.2, 0.5), 0.3, 0.16, DARK)
    f.blob((-2.0, 0.2), (-0.9, 0.6), (0.0, 0.75), (0.7, 0.65), (0.7, 0.25), (-0.6, 0.22), fill=DARK)
    f.shape((0.5, 0.7), (0.9, 0.95), (1.8, 0.75), (1.8, 0.6), (0.6, 0.48), fill=DARK)
    f.shape((0.5, 0.45), (1.75, 0.32), (1.7, 0.2), (0.6, 0.25), fill=DARK)
    for k in range(7):
        x = 0.85 + 0.13 * k
        f.shape((x, 0.54), (x + 0.05, 0.44), (x + 0.1, 0.56))
    for k in range(8):
        x = -1.2 + 0.22 * k
        f.shape((x, 0.55), (x + 0.1, 0.85), (x + 0.2, 0.6), fill=BLACK)
    _eye(f, 0.82, 0.86, 0.08)


def _ostrich(f: Frame) -> None:
    for x in (-0.08, 0.06):
        f.line((x, 0.36), (x + 0.05, 0.2), (x, 0.02), (x + 0.08, 0.01), width=2.2)
    f.blob(
        (-0.3, 0.42),
        (-0.22, 0.6),
        (0.05, 0.62),
        (0.16, 0.48),
        (0.0, 0.34),
        (-0.2, 0.34),
        fill=BLACK,
    )
    f.blob((-0.25, 0.5), (-0.42, 0.62), (-0.4, 0.42), fill=WHITE)
    f.limb((0.1, 0.54), (0.18, 0.7), (0.13, 0.86), thick=0.05)
    f.oval(0.15, 0.92, 0.07, 0.055)
    f.shape((0.2, 0.94), (0.34, 0.9), (0.2, 0.89), fill=GREY)
    _eye(f, 0.16, 0.94, 0.022)


def _pig(f: Frame) -> None:
    _legs(f, (-0.4, -0.22, 0.2, 0.36), 0.35, 0.13, PALE)
    f.curve((-0.62, 0.6), (-0.74, 0.7), (-0.66, 0.76), (-0.74, 0.86), width=1.6)
    f.oval(-0.05, 0.58, 0.6, 0.36, fill=PALE)
    f.oval(0.52, 0.68, 0.27, 0.26, fill=PALE)
    f.shape((0.38, 0.88), (0.42, 1.04), (0.56, 0.92), fill=GREY)
    f.oval(0.78, 0.64, 0.09, 0.11, fill=GREY)
    for y in (0.61, 0.67):
        f.dot(0.79, y, 0.018)
    _eye(f, 0.58, 0.76, 0.04)


def _bear(f: Frame) -> None:
    for x in (-0.16, 0.14):
        f.limb((x, 0.35), (x, 0.04), thick=0.2, fill=DARK)
        f.oval(x + 0.04, 0.03, 0.14, 0.035, fill=DARK)
    f.blob(
        (-0.32, 0.25),
        (-0.3, 0.6),
        (-0.14, 0.76),
        (0.14, 0.76),
        (0.3, 0.6),
        (0.3, 0.25),
        (0, 0.16),
        fill=DARK,
    )
    f.oval(0.02, 0.42, 0.18, 0.2, fill=GREY)
    for side in (-1, 1):
        f.limb((side * 0.24, 0.66), (side * 0.42, 0.52), (side * 0.4, 0.36), thick=0.12, fill=DARK)
        f.oval(side * 0.15, 0.99, 0.065, 0.06, fill=DARK)
    f.oval(0, 0.86, 0.2, 0.16, fill=DARK)
    f.oval(0.05, 0.81, 0.1, 0.075, fill=PALE)
    f.dot(0.08, 0.84, 0.03)
    for x in (-0.04, 0.11):
        f.dot(x, 0.91, 0.02, tone=WHITE)


ANIMALS: dict[str, tuple[Callable[[Frame], None], float]] = {
    "dog": (_dog, 0.3),
    "cat": (_cat, 0.32),
    "giraffe": (_giraffe, 0.72),
    "elephant": (_elephant, 0.5),
    "penguin": (_penguin, 0.4),
    "octopus": (_octopus, 0.36),
    "rabbit": (_rabbit, 0.36),
    "snail": (_snail, 0.24),
    "crocodile": (_crocodile, 0.2),
    "ostrich": (_ostrich, 0.62),
    "pig": (_pig, 0.3),
    "bear": (_bear, 0.58),
}
"""Animals by name: how each is drawn, and its height in picture heights."""
