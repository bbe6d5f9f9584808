"""Pen, brush and paper: hand-drawn lines, flat tones and hatching on a Pillow image."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from PIL import Image, ImageDraw

Point = tuple[float, float]
Points = Sequence[Point]
Rgb = tuple[int, int, int]

OVERSAMPLING = 2
"""The drawing is made at twice its size and then reduced: smooth edges."""

BLACK: Rgb = (22, 22, 24)
DARK: Rgb = (92, 92, 94)
GREY: Rgb = (158, 158, 160)
PALE: Rgb = (212, 212, 212)
WHITE: Rgb = (255, 255, 255)

_STEP_PX = 16.0
"""A line is bent by the hand's tremble about this often."""


@dataclass(frozen=True)
class Paint:
    """What the main surface of a thing is filled with."""

    fill: Rgb
    striped: bool = False


class Pen:
    """Draws in pixels of the finished picture; y grows downwards."""

    def __init__(self, size: tuple[int, int], weight: float, rng: Random) -> None:
        self.size = size
        self.weight = weight
        self._rng = rng
        self.image = Image.new("RGB", (size[0] * OVERSAMPLING, size[1] * OVERSAMPLING), WHITE)
        self._draw = ImageDraw.Draw(self.image)

    def finished(self) -> Image.Image:
        """The drawing at its final size."""
        return self.image.reduce(OVERSAMPLING)

    def fill(self, points: Points, tone: Rgb) -> None:
        """A flat tone without an outline."""
        self._draw.polygon([(x * OVERSAMPLING, y * OVERSAMPLING) for x, y in points], fill=tone)

    def stroke(self, points: Points, width: float = 1.0, tone: Rgb = BLACK) -> None:
        """A brush line through `points`, thin at its ends; `width` counts in pen weights."""
        path = self._trembling(points)
        if len(path) < 2:
            return
        half = width * self.weight * OVERSAMPLING / 2
        last = len(path) - 1
        closed = points[0] == points[-1]
        left: list[Point] = []
        right: list[Point] = []
        for i, (x, y) in enumerate(path):
            ax, ay = path[i - 1] if i else path[0]
            bx, by = path[i + 1] if i < last else path[last]
            dx, dy = bx - ax, by - ay
            length = math.hypot(dx, dy) or 1.0
            swell = 0.55 if i in (0, last) and not closed else 0.8 + 0.45 * self._rng.random()
            nx, ny = -dy / length * half * swell, dx / length * half * swell
            left.append((x * OVERSAMPLING + nx, y * OVERSAMPLING + ny))
            right.append((x * OVERSAMPLING - nx, y * OVERSAMPLING - ny))
        self._draw.polygon(left + right[::-1], fill=tone)

    def hatch(
        self, points: Points, gap: float, angle: float, tone: Rgb = BLACK, width: float = 0.6
    ) -> None:
        """Parallel lines `gap` pixels apart, `angle` in degrees, clipped to a polygon."""
        cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        turned = [(x * cos + y * sin, y * cos - x * sin) for x, y in points]
        low, high = min(v for _, v in turned), max(v for _, v in turned)
        thickness = max(1, round(width * self.weight * OVERSAMPLING))
        v = low + gap * (0.3 + 0.5 * self._rng.random())
        while v < high:
            for start, end in _crossings(turned, v):
                a = start + gap * 0.4 * self._rng.random()
                b = end - gap * 0.6 * self._rng.random()
                drift = gap * 0.2 * (self._rng.random() - 0.5)
                w = v + drift
                line = (a * cos - v * sin, a * sin + v * cos, b * cos - w * sin, b * sin + w * cos)
                if b > a:
                    self._draw.line([c * OVERSAMPLING for c in line], fill=tone, width=thickness)
            v += gap * (0.85 + 0.3 * self._rng.random())

    def dot(self, x: float, y: float, radius: float, tone: Rgb = BLACK) -> None:
        """A filled disc."""
        x, y, r = x * OVERSAMPLING, y * OVERSAMPLING, radius * OVERSAMPLING
        self._draw.ellipse((x - r, y - r, x + r, y + r), fill=tone)

    def _trembling(self, points: Points) -> list[Point]:
        """The path in short pieces, each moved a little: a hand, not a ruler."""
        path: list[Point] = []
        amplitude = 0.9
        ox = oy = 0.0
        for (ax, ay), (bx, by) in itertools.pairwise(points):
            pieces = max(1, round(math.hypot(bx - ax, by - ay) / _STEP_PX))
            for k in range(pieces):
                t = k / pieces
                path.append((ax + (bx - ax) * t + ox, ay + (by - ay) * t + oy))
                ox = 0.6 * ox + amplitude * (self._rng.random() - 0.5)
                oy = 0.6 * oy + amplitude * (self._rng.random() - 0.5)
        if points:
            path.append(path[0] if path and points[0] == points[-1] else points[-1])
        return path


class Frame:
    """A place on the paper with its own coordinates: x to the right (or left when flipped), y
    upwards, the unit being the height of what is drawn there."""

    def __init__(
        self,
        pen: Pen,
        x: float,
        y: float,
        unit: float,
        *,
        flip: bool = False,
        turn: float = 0.0,
        paint: Paint | None = None,
    ) -> None:
        self.pen = pen
        self.unit = unit
        self.paint = paint or Paint(GREY)
        self._x, self._y = x, y
        self._sign = -1.0 if flip else 1.0
        self._cos, self._sin = math.cos(math.radians(turn)), math.sin(math.radians(turn))

    def to_paper(self, points: Points) -> list[Point]:
        """Points of this frame in pixels of the picture."""
        unit, cos, sin = self.unit, self._cos, self._sin
        return [
            (
                self._x + self._sign * unit * (x * cos - y * sin),
                self._y - unit * (x * sin + y * cos),
            )
            for x, y in points
        ]

    def line(self, *points: Point, width: float = 1.0, tone: Rgb = BLACK) -> None:
        """Straight strokes through the points."""
        self.pen.stroke(self.to_paper(points), width, tone)

    def curve(self, *points: Point, width: float = 1.0, tone: Rgb = BLACK) -> None:
        """A smooth stroke through the points."""
        self.pen.stroke(self.to_paper(smooth(points, closed=False)), width, tone)

    def shape(self, *points: Point, fill: Rgb = WHITE, width: float = 1.0) -> None:
        """A polygon with an outline; it hides what is behind it."""
        paper = self.to_paper(points)
        self.pen.fill(paper, fill)
        self.pen.stroke([*paper, paper[0]], width)

    def blob(self, *points: Point, fill: Rgb = WHITE, width: float = 1.0) -> None:
        """A smooth closed outline through the points."""
        self.shape(*smooth(points, closed=True), fill=fill, width=width)

    def oval(
        self, x: float, y: float, rx: float, ry: float, fill: Rgb = WHITE, width: float = 1.0
    ) -> None:
        """An upright ellipse."""
        self.shape(*ellipse(x, y, rx, ry), fill=fill, width=width)

    def box(
        self, x: float, y: float, w: float, h: float, fill: Rgb = WHITE, width: float = 1.0
    ) -> None:
        """A rectangle whose lower left corner is (x, y)."""
        self.shape((x, y), (x + w, y), (x + w, y + h), (x, y + h), fill=fill, width=width)

    def limb(self, *points: Point, thick: float, fill: Rgb = WHITE) -> None:
        """An arm, a leg, a neck: a tube along the points, `thick` wide."""
        self.shape(*_tube(points, thick), fill=fill)

    def hatch(
        self,
        *points: Point,
        gap: float = 7.0,
        angle: float = 45.0,
        tone: Rgb = BLACK,
        width: float = 0.6,
    ) -> None:
        """Hatching clipped to a polygon; `gap` in pixels, so that it reads as texture."""
        self.pen.hatch(self.to_paper(points), gap, angle, tone, width)

    def dot(self, x: float, y: float, radius: float, tone: Rgb = BLACK) -> None:
        """A filled disc; the radius counts in this frame's unit."""
        [(px, py)] = self.to_paper([(x, y)])
        self.pen.dot(px, py, radius * self.unit, tone)

    def body(self, *points: Point) -> None:
        """A polygon in the thing's own paint."""
        self.shape(*points, fill=self.paint.fill)
        if self.paint.striped:
            self.hatch(*points, gap=max(9.0, 0.05 * self.unit), angle=90, width=2.4)

    def body_blob(self, *points: Point) -> None:
        """A smooth outline in the thing's own paint."""
        self.body(*smooth(points, closed=True))

    def body_limb(self, *points: Point, thick: float) -> None:
        """A tube in the thing's own paint."""
        self.body(*_tube(points, thick))


def ellipse(x: float, y: float, rx: float, ry: float, corners: int = 22) -> list[Point]:
    """The outline of an upright ellipse."""
    return [
        (
            x + rx * math.cos(2 * math.pi * k / corners),
            y + ry * math.sin(2 * math.pi * k / corners),
        )
        for k in range(corners)
    ]


def smooth(points: Points, closed: bool, pieces: int = 5) -> list[Point]:
    """A Catmull-Rom curve through `points`, as a polyline."""
    count = len(points)
    if count < 3:
        return list(points)
    path: list[Point] = []
    for i in range(count if closed else count - 1):
        p0 = points[i - 1] if closed or i else points[0]
        p1, p2 = points[i], points[(i + 1) % count]
        p3 = points[(i + 2) % count] if closed or i + 2 < count else points[-1]
        for k in range(pieces):
            path.append(_catmull_rom(p0, p1, p2, p3, k / pieces))
    return path if closed else [*path, points[-1]]


def _tube(points: Points, thick: float) -> list[Point]:
    """The outline of a tube along the points."""
    left, right = [], []
    for i, (x, y) in enumerate(points):
        (ax, ay), (bx, by) = points[max(0, i - 1)], points[min(len(points) - 1, i + 1)]
        length = math.hypot(bx - ax, by - ay) or 1.0
        nx, ny = -(by - ay) / length * thick / 2, (bx - ax) / length * thick / 2
        left.append((x + nx, y + ny))
        right.append((x - nx, y - ny))
    return left + right[::-1]


def _catmull_rom(p0: Point, p1: Point, p2: Point, p3: Point, t: float) -> Point:
    def along(a: float, b: float, c: float, d: float) -> float:
        return b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)))

    return along(p0[0], p1[0], p2[0], p3[0]), along(p0[1], p1[1], p2[1], p3[1])


def _crossings(polygon: Points, v: float) -> list[tuple[float, float]]:
    """The stretches of the horizontal line at `v` that lie inside the polygon."""
    hits = []
    ax, ay = polygon[-1]
    for bx, by in polygon:
        if (ay > v) != (by > v):
            hits.append(ax + (v - ay) * (bx - ax) / (by - ay))
        ax, ay = bx, by
    hits.sort()
    return list(zip(hits[::2], hits[1::2], strict=False))
