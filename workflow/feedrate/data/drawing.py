"""Generated pictures: a random scene, its drawing as a JPEG file, and captions that describe it."""

import hashlib
import io
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
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

_ASPECTS = (4 / 3, 4 / 3, 5 / 4, 1.0, 3 / 2, 4 / 5)  # of width to height
_SHORTEST_PX, _LONGEST_PX = 600, 1200
# Heights and positions are in picture heights.
_THING_HEIGHTS = {"giant": 0.66, "": 0.5, "small": 0.36}  # of a single thing, by its adjective
_FIGURE_HEIGHT, _COMPANION_HEIGHT, _GROUND = 0.56, 0.3, 0.1
_PLACES_IN_GROUP = ((-0.52, 0.0), (0.52, 0.0), (0.0, 1.0))  # of 2 or 3 things, in their heights
_PAPERS = ((255, 250, 238), (250, 251, 255), (255, 255, 255), (248, 244, 232))
_OVERSAMPLING = 2
_STROKE_PX = 24
_GRAIN = 18  # grey levels; with it, files are as large as those of scanned cartoons
_JPEG_QUALITY = 82
_TIMEOUT_S = 120.0

_TEMPLATES = {
    "description": (
        "{Figure} {where}, on the {side}. On the {other} we see {thing}.{companion}",
        "{Where}, {figure} looks at {thing}. The {who} is on the {side}.{companion}",
        "{Thing} on the {other} of {place}. On the {side} we see {figure}.{companion}",
        "We see {place}: {figure} is on the {side}, with {thing} on the {other}.{companion}",
    ),
    # No row has these two. Without them, the numbers that follow, and so the captions, are others.
    "uncanny": (
        "One does not expect {thing} {where}.",
        "It is odd that {figure} is {where} with {thing}.",
    ),
    "question": ("Why is {figure} {where}?", "Who left {thing} with {figure}?"),
    # Each names the place and the thing, so that the picture decides which of five quips is right.
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
    """The contents of a picture: a figure on one side, one to three equal things on the other."""

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
    """The scene of a contest; it is grey with the probability `grey_share`."""
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
        thing_size=_deal(f"{seed}/thing_size", contest, _THING_HEIGHTS),
        companion=companion if rng.random() < 0.5 else None,
    )


def _deal(seed: str, contest: int, values: Iterable[Value]) -> Value:
    """The value of a contest, dealt like a card: every n contests have each of n values once. Else
    a value might be more common in a split than in the wrong captions, and a model that prefers its
    word would beat chance without seeing a picture."""
    deck = list(values)
    deal, card = divmod(contest, len(deck))
    Random(f"{seed}/{deal}").shuffle(deck)
    return deck[card]


def describe(scene: Scene, rng: Random) -> dict[str, str]:
    """True sentences: `description`, and `quip` (a caption as in the contest)."""
    thing = " ".join(filter(None, (scene.thing_size, scene.paint, scene.thing)))
    if scene.count > 1:
        thing = f"{('two', 'three')[scene.count - 2]} {thing}s"
    else:
        thing = f"{'an' if thing[0] in 'aeiou' else 'a'} {thing}"
    words = {
        "figure": f"a {scene.figure}",
        "who": scene.figure,
        "thing": thing,
        "place": scene.place.name,
        "where": f"{scene.place.preposition} {scene.place.name}",
        "side": "left" if scene.left else "right",
        "other": "right" if scene.left else "left",
    }
    words |= {key.capitalize(): text[0].upper() + text[1:] for key, text in words.items()}
    companion = rng.choice(_COMPANIONS).format(f"a small {scene.companion}")
    words["companion"] = companion if scene.companion else ""
    return {kind: rng.choice(texts).format(**words) for kind, texts in _TEMPLATES.items()}


def draw_files(scenes: Mapping[str, Scene], seed: int, raw: Path, workers: int) -> list[RawFile]:
    """Draw the scenes, by path under `raw`, with `workers` processes. Raises DataError."""
    draw = partial(_draw_file, seed, raw)
    files = run_isolated(draw, list(scenes.items()), workers, _TIMEOUT_S)
    for file in files:
        if isinstance(file, Lost):
            raise DataError(f"a picture could not be drawn: {file.reason}")
    return files


def _draw_file(seed: int, raw: Path, item: tuple[str, Scene]) -> RawFile:
    path, scene = item
    data = render(scene, seed)
    (raw / path).write_bytes(data)
    return RawFile(path=path, sha256=hashlib.sha256(data).hexdigest())


def render(scene: Scene, seed: int) -> bytes:
    """The picture as a JPEG file, with one channel if the scene is grey, else three."""
    rng = Random(f"{seed}/{scene.contest}/drawing")
    image = _on_paper(_Ink(scene, rng).draw(), rng)
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=_JPEG_QUALITY)
    return stream.getvalue()


class _Ink:
    """Draws a scene at `_OVERSAMPLING` times its size. Lengths are in picture heights, y is up."""

    def __init__(self, scene: Scene, rng: Random) -> None:
        width, height = (side * _OVERSAMPLING for side in scene.size)
        self._scene = scene
        self._rng = rng
        self._height_px = height
        self._aspect = width / height
        self._line_px = max(2, round(rng.uniform(1.4, 2.6) * min(width, height) / 800))
        self._image = Image.new("RGB", (width, height))
        self._pen = ImageDraw.Draw(self._image)

    def draw(self) -> Image.Image:
        """The scene at its own size."""
        scene, middle = self._scene, self._aspect / 2
        self._add_place(scene.place)
        self._line_px *= 2
        # Both sides lie in the middle square of the picture, because models see only this.
        aside = min(0.25 * self._aspect, 0.33)
        fit = aside / 0.33
        towards = aside if scene.left else -aside
        side = _THING_HEIGHTS[scene.thing_size] * fit
        places: Sequence[tuple[float, float]] = ((0.0, 0.0),)
        if scene.count > 1:
            side *= 0.56
            places = _PLACES_IN_GROUP[: scene.count]
        thing = shapes.THINGS[scene.thing]
        for dx, dy in places:
            self._add(thing, middle + towards + dx * side, _GROUND + dy * side, side, side)
        side = _FIGURE_HEIGHT * fit
        self._add(shapes.FIGURES[scene.figure], middle - towards, _GROUND, side, side)
        if scene.companion:
            side = _COMPANION_HEIGHT * fit
            self._add(shapes.FIGURES[scene.companion], middle, _GROUND / 2, side, side)
        image = self._image.getchannel("G") if scene.grey else self._image
        return image.reduce(_OVERSAMPLING)

    def _add_place(self, place: shapes.Place) -> None:
        wide, horizon, uniform = self._aspect, place.horizon, self._rng.uniform
        self._add([shapes.box(0, 0, 1, 1, place.wall)], wide / 2, horizon, wide, 1 - horizon)
        self._add([shapes.box(0, 0, 1, 1, place.floor)], wide / 2, 0, wide, horizon)
        for motif in place.motifs:
            columns = max(1, round(motif.columns * wide))
            step_x, step_y = wide / columns, (motif.top - motif.bottom) / motif.rows
            for row, column in itertools.product(range(motif.rows), range(columns + 1)):
                dx, dy, more = (motif.scatter * uniform(-0.5, 0.5) for _ in range(3))
                x, y = (column + 0.5 * (row % 2) + dx) * step_x, motif.bottom + (row + dy) * step_y
                self._add(motif.shape, x, y, (1 + more) * motif.width, (1 + more) * motif.height)

    def _add(self, shape: shapes.Shape, x: float, y: float, width: float, height: float) -> None:
        """Fill and outline each polygon of a shape; `x` is its middle, `y` its lower edge."""
        x, y, width, height = (length * self._height_px for length in (x, y, width, height))
        for points, paint in shape:
            fill = paint or shapes.PAINTS[self._scene.paint]
            corners = [(x + px * width, self._height_px - y - py * height) for px, py in points]
            self._pen.polygon(corners, fill.rgb)
            if fill.striped:
                self._hatch(corners)
            self._pen.line(self._trembling(corners), shapes.BLACK.rgb, self._line_px, "curve")

    def _hatch(self, corners: shapes.Points) -> None:
        left, top = (math.floor(min(values)) for values in zip(*corners, strict=True))
        right, bottom = (math.ceil(max(values)) for values in zip(*corners, strict=True))
        size = width, height = right - left + 1, bottom - top + 1
        inside, lines = Image.new("1", size), Image.new("1", size)
        ImageDraw.Draw(inside).polygon([(x - left, y - top) for x, y in corners], 1)
        for x in range(-height, width, round(0.02 * self._height_px)):
            ImageDraw.Draw(lines).line((x, height, x + height, 0), 1, self._line_px)
        self._pen.bitmap((left, top), ImageChops.logical_and(inside, lines), shapes.BLACK.rgb)

    def _trembling(self, corners: shapes.Points) -> shapes.Points:
        """A closed outline of short strokes whose ends are moved a little, as if drawn by hand."""
        path = []
        random, reach = self._rng.random, self._line_px
        for (ax, ay), (bx, by) in itertools.pairwise([*corners, corners[0]]):
            pieces = 1 + int(math.hypot(bx - ax, by - ay) / (_STROKE_PX * _OVERSAMPLING))
            for k in range(pieces):
                x, y = ax + (bx - ax) * k / pieces, ay + (by - ay) * k / pieces
                path.append((x + reach * (random() - 0.5), y + reach * (random() - 0.5)))
        return [*path, path[0]]


def _size(rng: Random) -> tuple[int, int]:
    """Width and height in px; small pictures are more common."""
    aspect = rng.choice(_ASPECTS)
    longest_short = _LONGEST_PX / max(aspect, 1 / aspect)
    short = _SHORTEST_PX + (longest_short - _SHORTEST_PX) * rng.random() ** 1.7
    width, height = (short * aspect, short) if aspect >= 1 else (short, short / aspect)
    return min(_LONGEST_PX, round(width)), min(_LONGEST_PX, round(height))


def _on_paper(drawing: Image.Image, rng: Random) -> Image.Image:
    """The drawing on tinted paper with the grain of a scan: fine noise, and noise of 12 x 12."""
    size = width, height = drawing.size
    fine = Image.frombytes("L", size, rng.randbytes(width * height))
    clouds = Image.frombytes("L", (12, 12), rng.randbytes(144))
    clouds = clouds.resize(size, Image.Resampling.BICUBIC)
    grain = Image.blend(fine, clouds, 0.4).point([v * _GRAIN // 255 for v in range(256)])
    if drawing.mode == "RGB":
        drawing = ImageChops.multiply(drawing, Image.new("RGB", size, rng.choice(_PAPERS)))
        grain = Image.merge("RGB", (grain, grain, grain))
    return ImageChops.add(drawing, grain, scale=1, offset=-_GRAIN // 2)
