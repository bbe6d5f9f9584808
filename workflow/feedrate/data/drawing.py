"""Generated pictures: a scene chosen at random, its drawing as a JPEG file, and true captions.

The same seed and number give the same scene, file and sentences.
"""

import hashlib
import io
import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeVar

from PIL import Image, ImageChops, ImageDraw

from feedrate.data import shapes
from feedrate.data.isolate import Lost, run_isolated
from feedrate.data.manifest import DataError, RawFile

Value = TypeVar("Value")
Box = tuple[float, float, float, float]
"""Centre and ground of a shape, its width and height."""
THING_HEIGHTS = {"giant": 0.66, "": 0.5, "small": 0.36}
"""Height of one thing in picture heights, by its adjective."""

_ASPECTS = (4 / 3, 4 / 3, 5 / 4, 1.0, 3 / 2, 4 / 5)
_SIDES_PX = (600, 1200)
_FIGURE_HEIGHT, _COMPANION_HEIGHT, _GROUND = 0.56, 0.3, 0.1
_GROUPS = {
    1: ((0.0, 0.0),),
    2: ((-0.52, 0.0), (0.52, 0.0)),
    3: ((-0.52, 0.0), (0.52, 0.0), (0.0, 1.0)),
}
"""Where the things of a group stand, in heights of one of them."""
_NUMBERS = {2: "two", 3: "three"}
_PAPERS = ((255, 250, 238), (250, 251, 255), (255, 255, 255), (248, 244, 232))
_OVERSAMPLING = 2
_STROKE_PX = 24
_GRAIN = 18
"""Range of the film grain in grey levels; it gives a file the size of a scanned one."""
_QUALITY = 82
_TIMEOUT_S = 120.0

_TEMPLATES = {
    "description": (
        "{Figure} {where}, on the {side}. On the {other} we see {thing}.{companion}",
        "{Where}, {figure} looks at {thing}. The {who} is on the {side}.{companion}",
        "{Thing} on the {other} of {place}. On the {side} we see {figure}.{companion}",
        "We see {place}: {figure} is on the {side}, with {thing} on the {other}.{companion}",
    ),
    "uncanny": (
        "One does not expect {thing} {where}.",
        "It is odd that {figure} is {where} with {thing}.",
    ),
    "question": ("Why is {figure} {where}?", "Who left {thing} with {figure}?"),
    # Each names the place and the thing, so the picture tells which of five quips is its own.
    "quip": (
        "I asked for {thing}, but not {where}.",
        "The advertisement said {place}, and nothing about {thing}.",
        "My doctor prescribed {thing} and a year {where}.",
        "{Place} came with {thing}, and the rent is still too high.",
        "Fine, but you explain {thing} {where} to your mother.",
        "Everybody begins somewhere, and I began {where} with {thing}.",
        "I would leave {place}, but where else would one keep {thing}?",
        "You should see what {figure} did {where} with {thing}.",
    ),
}
_COMPANIONS = (" Between them is {}.", " We see {} in the middle.", " In front there is {}.")


@dataclass(frozen=True)
class Scene:
    """All that a picture shows: a figure at one side, one to three equal things at the other."""

    contest: int
    size: tuple[int, int]
    grey: bool
    place: shapes.Place
    figure: str
    left: bool
    thing: str
    count: int
    paint: str
    thing_size: str
    companion: str | None


def invent(seed: int, contest: int, grey_share: float) -> Scene:
    """The scene of a contest. Neighbouring contests show different places, things and so on."""
    rng = Random(f"{seed}/{contest}/scene")
    grey = rng.random() < grey_share
    figure = _deal(f"{seed}/figure", contest, shapes.FIGURES)
    companion = rng.choice([name for name in shapes.FIGURES if name != figure])
    return Scene(
        contest=contest,
        size=_size(rng),
        grey=grey,
        place=_deal(f"{seed}/place", contest, shapes.PLACES),
        figure=figure,
        left=rng.random() < 0.5,
        thing=_deal(f"{seed}/thing", contest, shapes.THINGS),
        count=_deal(f"{seed}/count", contest, (1, 1, 2, 3)),
        paint=_deal(f"{seed}/paint", contest, shapes.INKS if grey else shapes.COLOURS),
        thing_size=_deal(f"{seed}/thing_size", contest, THING_HEIGHTS),
        companion=companion if rng.random() < 0.5 else None,
    )


def _deal(seed: str, contest: int, values: Iterable[Value]) -> Value:
    """A value for a contest: any len(values) contests from a multiple of that on have each once.

    Without this a split can have one value far more often than the wrong captions have it, and a
    model that prefers its word scores above chance, or below, without a look at the pictures.
    """
    deck = list(values)
    deal, card = divmod(contest, len(deck))
    Random(f"{seed}/{deal}").shuffle(deck)
    return deck[card]


def describe(scene: Scene, rng: Random) -> dict[str, str]:
    """A description, an uncanny one, a question and a quip (a caption as readers send in)."""
    thing = " ".join(filter(None, (scene.thing_size, scene.paint, scene.thing)))
    sides = ("left", "right") if scene.left else ("right", "left")
    words = {
        "figure": _a(scene.figure),
        "who": scene.figure,
        "thing": _a(thing) if scene.count == 1 else f"{_NUMBERS[scene.count]} {thing}s",
        "place": scene.place.name,
        "where": f"{scene.place.preposition} {scene.place.name}",
        "side": sides[0],
        "other": sides[1],
    }
    words |= {key.capitalize(): text[0].upper() + text[1:] for key, text in words.items()}
    companion = rng.choice(_COMPANIONS).format(f"a small {scene.companion}")
    words["companion"] = companion if scene.companion else ""
    return {kind: rng.choice(texts).format(**words) for kind, texts in _TEMPLATES.items()}


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def draw_files(scenes: Mapping[str, Scene], seed: int, raw: Path, workers: int) -> list[RawFile]:
    """Draw scenes, by path under `raw`, with `workers` processes. Raises DataError on failure."""
    drawn = run_isolated(partial(_draw_file, seed, raw), list(scenes.items()), workers, _TIMEOUT_S)
    for file in drawn:
        if isinstance(file, Lost):
            raise DataError(f"a picture could not be drawn: {file.reason}")
    return [file for file in drawn if isinstance(file, RawFile)]


def _draw_file(seed: int, raw: Path, item: tuple[str, Scene]) -> RawFile:
    path, scene = item
    data = render(scene, seed)
    (raw / path).write_bytes(data)
    return RawFile(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest())


def render(scene: Scene, seed: int) -> bytes:
    """The picture as a JPEG file: one channel where the scene is grey, else three."""
    rng = Random(f"{seed}/{scene.contest}/drawing")
    image = _on_paper(_Ink(scene, rng).drawn(), rng)
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=_QUALITY)
    return stream.getvalue()


class _Ink:
    """Draws a scene at a multiple of its size. Lengths are in picture heights, y points upwards."""

    def __init__(self, scene: Scene, rng: Random) -> None:
        width, self._height_px = (side * _OVERSAMPLING for side in scene.size)
        self._scene, self._rng, self._aspect = scene, rng, width / self._height_px
        self._line_px = max(2, round(rng.uniform(1.4, 2.6) * min(width, self._height_px) / 800))
        self._image = Image.new("L" if scene.grey else "RGB", (width, self._height_px))
        self._draw = ImageDraw.Draw(self._image)
        self._black = self._tone(shapes.BLACK)

    def drawn(self) -> Image.Image:
        """The scene at its own size."""
        scene, middle = self._scene, self._aspect / 2
        self._draw_place(scene.place)
        self._line_px *= 2
        # Both sides lie inside the middle square of the picture, which is what models see.
        aside = min(0.25 * self._aspect, 0.33)
        fit = aside / 0.33
        towards = aside if scene.left else -aside
        unit = THING_HEIGHTS[scene.thing_size] * fit * (1.0 if scene.count == 1 else 0.56)
        for dx, dy in _GROUPS[scene.count]:
            box = middle + towards + dx * unit, _GROUND + dy * unit, unit, unit
            self._add(shapes.THINGS[scene.thing], box, shapes.PAINTS[scene.paint])
        unit = _FIGURE_HEIGHT * fit
        self._add(shapes.FIGURES[scene.figure], (middle - towards, _GROUND, unit, unit))
        if scene.companion:
            unit = _COMPANION_HEIGHT * fit
            self._add(shapes.FIGURES[scene.companion], (middle, _GROUND / 2, unit, unit))
        return self._image.reduce(_OVERSAMPLING)

    def _draw_place(self, place: shapes.Place) -> None:
        wide, horizon, uniform = self._aspect, place.horizon, self._rng.uniform
        self._add([shapes.box(0, 0, 1, 1, place.wall)], (wide / 2, horizon, wide, 1 - horizon))
        self._add([shapes.box(0, 0, 1, 1, place.floor)], (wide / 2, 0, wide, horizon))
        for motif in place.motifs:
            columns = max(1, round(motif.columns * wide))
            step_x, step_y = wide / columns, (motif.top - motif.bottom) / motif.rows
            for row, column in itertools.product(range(motif.rows), range(columns + 1)):
                dx, dy, more = (motif.scatter * uniform(-0.5, 0.5) for _ in range(3))
                x, y = (column + 0.5 * (row % 2) + dx) * step_x, motif.bottom + (row + dy) * step_y
                size = (1 + more) * motif.width, (1 + more) * motif.height
                self._add(motif.shape, (x, y, *size))

    def _add(self, shape: shapes.Shape, box: Box, paint: shapes.Paint = shapes.WHITE) -> None:
        """Draw the fill and the outline of each polygon of a shape."""
        x, y, width, height = (length * self._height_px for length in box)
        for points, own in shape:
            corners = [(x + px * width, self._height_px - y - py * height) for px, py in points]
            self._draw.polygon(corners, self._tone(own or paint))
            if (own or paint).striped:
                self._hatch(corners)
            self._draw.line(self._trembling(corners), self._black, self._line_px, "curve")

    def _tone(self, paint: shapes.Paint) -> int | tuple[int, int, int]:
        return paint.rgb[1] if self._scene.grey else paint.rgb

    def _hatch(self, corners: shapes.Points) -> None:
        """Diagonal lines inside a polygon."""
        left, top = (math.floor(min(values)) for values in zip(*corners, strict=True))
        right, bottom = (math.ceil(max(values)) for values in zip(*corners, strict=True))
        size = width, height = right - left + 1, bottom - top + 1
        inside, lines = Image.new("1", size), Image.new("1", size)
        ImageDraw.Draw(inside).polygon([(x - left, y - top) for x, y in corners], 1)
        for x in range(-height, width, round(0.02 * self._height_px)):
            ImageDraw.Draw(lines).line((x, height, x + height, 0), 1, self._line_px)
        self._draw.bitmap((left, top), ImageChops.logical_and(inside, lines), self._black)

    def _trembling(self, corners: shapes.Points) -> shapes.Points:
        """A closed outline in short strokes whose ends move a little, as drawn by hand."""
        random, reach, path = self._rng.random, self._line_px, []
        for (ax, ay), (bx, by) in itertools.pairwise([*corners, corners[0]]):
            pieces = 1 + int(math.hypot(bx - ax, by - ay) / (_STROKE_PX * _OVERSAMPLING))
            for k in range(pieces):
                x, y = ax + (bx - ax) * k / pieces, ay + (by - ay) * k / pieces
                path.append((x + reach * (random() - 0.5), y + reach * (random() - 0.5)))
        return [*path, path[0]]


def _size(rng: Random) -> tuple[int, int]:
    """Width and height in pixels; small pictures are more common."""
    low, high = _SIDES_PX
    aspect = rng.choice(_ASPECTS)
    short = low + (high / max(aspect, 1 / aspect) - low) * rng.random() ** 1.7
    width, height = (short * aspect, short) if aspect >= 1 else (short, short / aspect)
    return min(high, round(width)), min(high, round(height))


def _on_paper(drawing: Image.Image, rng: Random) -> Image.Image:
    """The drawing on tinted paper, with the grain of a scan: fine noise over broad clouds."""
    size = width, height = drawing.size
    fine = Image.frombytes("L", size, rng.randbytes(width * height))
    clouds = Image.frombytes("L", (12, 12), rng.randbytes(144))
    clouds = clouds.resize(size, Image.Resampling.BICUBIC)
    grain = Image.blend(fine, clouds, 0.4).point([v * _GRAIN // 255 for v in range(256)])
    if drawing.mode == "RGB":
        drawing = ImageChops.multiply(drawing, Image.new("RGB", size, rng.choice(_PAPERS)))
        grain = Image.merge("RGB", (grain, grain, grain))
    return ImageChops.add(drawing, grain, scale=1, offset=-_GRAIN // 2)
