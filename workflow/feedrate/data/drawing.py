"""Generated pictures: a random scene, its drawing as a JPEG file, and captions that describe it."""

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

_ASPECTS = (4 / 3, 4 / 3, 5 / 4, 1.0, 3 / 2, 4 / 5)
_SHORTEST_PX, _LONGEST_PX = 600, 1200
_THING_HEIGHTS = {"giant": 0.66, "": 0.5, "small": 0.36}
"""Height of a single thing by its adjective. Heights and positions are in picture heights."""
_FIGURE_HEIGHT, _COMPANION_HEIGHT, _GROUND = 0.56, 0.3, 0.1
_PLACES_IN_GROUP = ((-0.52, 0.0), (0.52, 0.0), (0.0, 1.0))
"""Positions of two or three things, in heights of one of them."""
_PAPERS = ((255, 250, 238), (250, 251, 255), (255, 255, 255), (248, 244, 232))
_OVERSAMPLING = 2
_STROKE_PX = 24
_GRAIN = 18
"""Range of the grain in grey levels; with it, files are as large as those of scanned cartoons."""
_JPEG_QUALITY = 82
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
    sides = ("left", "right") if scene.left else ("right", "left")
    number, article = ("", "one", "two", "three")[scene.count], "an" if thing[0] in "aeiou" else "a"
    words = {
        "figure": f"a {scene.figure}",
        "who": scene.figure,
        "thing": f"{number} {thing}s" if scene.count > 1 else f"{article} {thing}",
        "place": scene.place.name,
        "where": f"{scene.place.preposition} {scene.place.name}",
        "side": sides[0],
        "other": sides[1],
    }
    words |= {key.capitalize(): text[0].upper() + text[1:] for key, text in words.items()}
    companion = rng.choice(_COMPANIONS).format(f"a small {scene.companion}")
    words["companion"] = companion if scene.companion else ""
    return {kind: rng.choice(texts).format(**words) for kind, texts in _TEMPLATES.items()}


def draw_files(scenes: Mapping[str, Scene], seed: int, raw: Path, workers: int) -> list[RawFile]:
    """Draw the scenes, by path under `raw`, with `workers` processes. Raises DataError."""
    draw = partial(_draw_file, seed, raw)
    files = run_isolated(draw, list(scenes.items()), workers, _TIMEOUT_S)
    for lost in (file for file in files if isinstance(file, Lost)):
        raise DataError(f"a picture could not be drawn: {lost.reason}")
    return files


def _draw_file(seed: int, raw: Path, item: tuple[str, Scene]) -> RawFile:
    path, scene = item
    data = render(scene, seed)
    (raw / path).write_bytes(data)
    return RawFile(path=path, sha256=hashlib.sha256(data).hexdigest())


def render(scene: Scene, seed: int) -> bytes:
    """The picture as a JPEG file, with one channel if the scene is grey, else three."""
    rng = Random(f"{seed}/{scene.contest}/drawing")
    image = _on_paper(_Ink(scene, rng).drawn(), rng)
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=_JPEG_QUALITY)
    return stream.getvalue()


class _Ink:
    """Draws a scene at `_OVERSAMPLING` times its size. Lengths are in picture heights, y is up."""

    def __init__(self, scene: Scene, rng: Random) -> None:
        width, self._height_px = (side * _OVERSAMPLING for side in scene.size)
        self._scene, self._rng, self._aspect = scene, rng, width / self._height_px
        self._line_px = max(2, round(rng.uniform(1.4, 2.6) * min(width, self._height_px) / 800))
        self._image = Image.new("RGB", (width, self._height_px))
        self._draw = ImageDraw.Draw(self._image)

    def drawn(self) -> Image.Image:
        """The scene at its own size."""
        scene, middle = self._scene, self._aspect / 2
        self._add_place(scene.place)
        self._line_px *= 2
        # Both sides lie in the middle square of the picture, because models see only this.
        aside = min(0.25 * self._aspect, 0.33)
        fit = aside / 0.33
        towards = aside if scene.left else -aside
        unit = _THING_HEIGHTS[scene.thing_size] * fit * (1.0 if scene.count == 1 else 0.56)
        group = _PLACES_IN_GROUP[: scene.count] if scene.count > 1 else ((0.0, 0.0),)
        for dx, dy in group:
            x, y = middle + towards + dx * unit, _GROUND + dy * unit
            self._add(shapes.THINGS[scene.thing], x, y, unit, unit)
        unit = _FIGURE_HEIGHT * fit
        self._add(shapes.FIGURES[scene.figure], middle - towards, _GROUND, unit, unit)
        if scene.companion:
            unit = _COMPANION_HEIGHT * fit
            self._add(shapes.FIGURES[scene.companion], middle, _GROUND / 2, unit, unit)
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

    def _add(self, shape: shapes.Shape, *box: float) -> None:
        """Fill and outline each polygon of a shape; `box`: its centre, ground, width and height."""
        x, y, width, height = (length * self._height_px for length in box)
        for points, paint in shape:
            fill = paint or shapes.PAINTS[self._scene.paint]
            corners = [(x + px * width, self._height_px - y - py * height) for px, py in points]
            self._draw.polygon(corners, fill.rgb)
            if fill.striped:
                self._hatch(corners)
            self._draw.line(self._trembling(corners), shapes.BLACK.rgb, self._line_px, "curve")

    def _hatch(self, corners: shapes.Points) -> None:
        left, top = (math.floor(min(values)) for values in zip(*corners, strict=True))
        right, bottom = (math.ceil(max(values)) for values in zip(*corners, strict=True))
        size = width, height = right - left + 1, bottom - top + 1
        inside, lines = Image.new("1", size), Image.new("1", size)
        ImageDraw.Draw(inside).polygon([(x - left, y - top) for x, y in corners], 1)
        for x in range(-height, width, round(0.02 * self._height_px)):
            ImageDraw.Draw(lines).line((x, height, x + height, 0), 1, self._line_px)
        self._draw.bitmap((left, top), ImageChops.logical_and(inside, lines), shapes.BLACK.rgb)

    def _trembling(self, corners: shapes.Points) -> shapes.Points:
        """A closed outline of short strokes whose ends are moved a little, as if drawn by hand."""
        random, reach, path = self._rng.random, self._line_px, []
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
