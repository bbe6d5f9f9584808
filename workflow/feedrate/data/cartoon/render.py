"""From a scene to the bytes of a JPEG file."""

import io
from random import Random

from PIL import Image, ImageChops

from feedrate.data.cartoon.animals import ANIMALS
from feedrate.data.cartoon.pen import BLACK, DARK, WHITE, Frame, Pen
from feedrate.data.cartoon.people import LOOKS, draw_person
from feedrate.data.cartoon.places import GROUND, Setting
from feedrate.data.cartoon.scene import PAINTS, THING_HEIGHTS, Scene
from feedrate.data.cartoon.things import HALF_WIDTHS, THINGS

_PERSON_HEIGHT = {"child": 0.44}
_PAPERS = ((255, 250, 238), (250, 251, 255), (255, 255, 255), (248, 244, 232))
_GRAIN = 18
"""Full range of the paper's grain, in grey levels; with it a file has the size of a scanned one."""
_QUALITY = 82


def render(scene: Scene, seed: int) -> bytes:
    """The cartoon as a JPEG file: one channel where the scene is grey, else three."""
    rng = Random(f"{seed}/{scene.contest}/drawing")
    width, height = scene.size
    pen = Pen(scene.size, scene.bold * min(width, height) / 800, rng)
    aspect = width / height
    sky = DARK if scene.night else WHITE
    scene.place.draw(Setting(Frame(pen, 0, height, height), aspect, sky, rng))
    _draw_thing(pen, scene, aspect)
    _draw_figure(pen, scene, aspect)
    _draw_companion(pen, scene, aspect)
    _border(pen)
    image = _on_paper(pen.finished(), scene, rng)
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=_QUALITY)
    return stream.getvalue()


def _frame(pen: Pen, x: float, unit: float, ground: float = GROUND, **more: object) -> Frame:
    """A frame at (x, ground), with lengths in picture heights."""
    height = pen.size[1]
    return Frame(pen, x * height, height * (1 - ground), unit * height, **more)  # type: ignore[arg-type]


def _draw_thing(pen: Pen, scene: Scene, aspect: float) -> None:
    half_width = THING_HEIGHTS["giant"] * HALF_WIDTHS.get(scene.thing, 0.55)
    unit = THING_HEIGHTS[scene.thing_size] * min(1.0, 0.27 * aspect / half_width)
    x = (0.72 if scene.left else 0.28) * aspect
    THINGS[scene.thing](_frame(pen, x, unit, paint=PAINTS[scene.paint]))


def _draw_figure(pen: Pen, scene: Scene, aspect: float) -> None:
    x = (0.27 if scene.left else 0.73) * aspect
    if scene.figure in LOOKS:
        unit = _PERSON_HEIGHT.get(scene.figure, 0.62)
        frame = _frame(pen, x, unit, GROUND - 0.06, flip=not scene.left)
        draw_person(frame, scene.figure, scene.pose)
    else:
        draw, unit = ANIMALS[scene.figure]
        unit *= 1.1 * min(1.0, aspect)
        draw(_frame(pen, x, unit, GROUND - 0.06, flip=not scene.left))


def _draw_companion(pen: Pen, scene: Scene, aspect: float) -> None:
    if scene.companion:
        draw, unit = ANIMALS[scene.companion]
        draw(
            _frame(pen, 0.5 * aspect, unit * 0.62 * min(1.0, aspect), GROUND - 0.1, flip=scene.left)
        )


def _border(pen: Pen) -> None:
    width, height = pen.size
    m = 0.012 * height
    corners = [(m, m), (width - m, m), (width - m, height - m), (m, height - m), (m, m)]
    pen.stroke(corners, 1.6, BLACK)


def _on_paper(drawing: Image.Image, scene: Scene, rng: Random) -> Image.Image:
    """Ink on grained paper: a tint for colour pictures, and the noise of a scanner."""
    if scene.grey:
        drawing = drawing.convert("L")
    else:
        tint = Image.new("RGB", drawing.size, rng.choice(_PAPERS))
        drawing = ImageChops.multiply(drawing, tint)
    grain = _grain(drawing.size, rng)
    if drawing.mode == "RGB":
        grain = Image.merge("RGB", (grain, grain, grain))
    return ImageChops.add(drawing, grain, scale=1, offset=-_GRAIN // 2)


def _grain(size: tuple[int, int], rng: Random) -> Image.Image:
    """Noise from 0 to _GRAIN: fine grain over broad clouds."""
    width, height = size
    fine = Image.frombytes("L", size, rng.randbytes(width * height))
    clouds = Image.frombytes("L", (12, 12), rng.randbytes(144)).resize(
        size, Image.Resampling.BICUBIC
    )
    return Image.blend(fine, clouds, 0.4).point([v * _GRAIN // 255 for v in range(256)])
