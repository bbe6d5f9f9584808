"""From a JPEG file to the model's pixels, and the random changes on the way.

Decoding follows the published script (optimum-habana, run_bridgetower.py): it decodes with Pillow,
converts to float32 at full size, resizes the shorter side with antialiased bicubic, crops the
centre and normalises, all with torchvision. torch's own functions give the same numbers without it.

Random crops, flips and colours depend only on seed, epoch and row, so they are the same on every
decode path, with any number of workers and ranks.
"""

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

from feedrate.data.manifest import DataError
from feedrate.loading.stages import span

LEVELS = 255

ASPECTS, TRIES = (3 / 4, 4 / 3), 10
"""Aspect ratios of a random crop, and maximum tries to fit one: as in RandomResizedCrop."""

LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in grey (ITU-R BT.601), as in Pillow and torchvision."""

Statistics = tuple[float, float, float]
Size = tuple[int, int]
"""Height and width, px."""
Batch = dict[str, Any]
"""Tensors by the names of the model's arguments, and `return_loss`."""


class Box(NamedTuple):
    """Part of a picture, px."""

    top: int
    left: int
    height: int
    width: int

    def scaled(self, full: Size, here: Size) -> "Box":
        """The same part if the picture has the size `here` instead of `full` (height, width)."""
        if full == here:
            return self
        top, bottom = _scaled(self.top, self.height, full[0], here[0])
        left, right = _scaled(self.left, self.width, full[1], here[1])
        return Box(top, left, bottom - top, right - left)


def _scaled(start: int, length: int, full: int, here: int) -> tuple[int, int]:
    """Start and end of an interval at another scale, at least 1 px long."""
    first = min(round(start * here / full), here - 1)
    return first, max(first + 1, min(here, round((start + length) * here / full)))


class Draw(NamedTuple):
    """The random changes of one sample in one epoch."""

    seed: tuple[int, ...] = ()
    min_area: float = 0.0
    flip: bool = False
    colour: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """Factors of brightness, contrast and saturation."""

    def box(self, height: int, width: int) -> Box | None:
        """The random crop of a picture of this size; None: crop the centre."""
        if not self.min_area:
            return None
        rng = np.random.default_rng((*self.seed, 1))
        for _ in range(TRIES):
            area = height * width * rng.uniform(self.min_area, 1)
            aspect = math.exp(rng.uniform(math.log(ASPECTS[0]), math.log(ASPECTS[1])))
            high, wide = round(math.sqrt(area / aspect)), round(math.sqrt(area * aspect))
            if 0 < high <= height and 0 < wide <= width:
                top, left = rng.integers((height - high + 1, width - wide + 1))
                return Box(int(top), int(left), high, wide)
        side = min(height, width)
        return Box((height - side) // 2, (width - side) // 2, side, side)


NOTHING = Draw()


@dataclass(frozen=True)
class Augmentation:
    """The range of random changes; with all three at 0 there are none."""

    seed: int
    min_area: float = 0.0
    flip: bool = False
    jitter: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.min_area or self.flip or self.jitter)

    def draw(self, epoch: int, row: int) -> Draw:
        """The changes of `row` in `epoch`."""
        if not self:
            return NOTHING
        seed = (self.seed, epoch, row)
        rng = np.random.default_rng((*seed, 0))
        flip = bool(rng.random() < 0.5) and self.flip
        brightness, contrast, saturation = (1 + self.jitter * rng.uniform(-1, 1, 3)).tolist()
        return Draw(seed, self.min_area, flip, (brightness, contrast, saturation))


@contextmanager
def decoding(path: str | Path) -> Iterator[None]:
    """Raise DataError, which names the file, if it cannot be read or decoded."""
    try:
        yield
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise undecodable(path, error) from error


def undecodable(path: str | Path, error: Exception) -> DataError:
    """The error for a file that cannot be read or decoded."""
    return DataError(f"{path}: cannot be decoded ({error}); prepare the data again")


def fetch(path: Path) -> bytes:
    """A file's bytes, in two stages: `open` and `read`. Raises OSError."""
    with span("open"):
        stream = path.open("rb", buffering=0)
    with stream, span("read"):
        return stream.read()


def decode(path: str | Path) -> torch.Tensor:
    """Read an image as RGB: float32 in 0 to 1, (3, height, width). Raises DataError."""
    with decoding(path):
        data = fetch(Path(path))
        with span("decode"), Image.open(io.BytesIO(data)) as image:
            levels = torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)
            return levels.contiguous().to(torch.float32).div_(LEVELS)


def resize_to(pixels: torch.Tensor, size: list[int]) -> torch.Tensor:
    """Antialiased bicubic resize of (c, h, w) to [height, width], as torchvision's Resize."""
    return torch.nn.functional.interpolate(
        pixels[None], size=size, mode="bicubic", align_corners=False, antialias=True
    )[0]


def resize_part(levels: torch.Tensor, size: Sequence[int], part: Box) -> torch.Tensor:
    """The part of `resize_to(levels, size)`, uint8 (c, h, w), but only that part is computed.

    A level differs by at most 1, where rounding of the scale shows. torch is fast only with 3 or 4
    channels, so four rows of a grey picture are resized as the channels of one.
    """
    channels, height, width = levels.shape
    bottom, right = part.top + part.height, part.left + part.width
    scales = size[0] / height, size[1] / width
    # The input rows on which the part depends.
    shrunk = height / size[0]
    support = 2 * max(1.0, shrunk) + 1  # of the cubic kernel, and one row more
    first = max(0, math.floor(shrunk * (part.top + 0.5) - support))
    last = min(height, math.ceil(shrunk * (bottom - 0.5) + support))
    if channels > 1:
        rows = levels[:, :last].permute(1, 2, 0).contiguous()
        pixels = rows[None].permute(0, 3, 1, 2)  # with the strides of channels_last
        return _upsample(pixels, (bottom, right), scales)[0, :, part.top :, part.left :]
    rows = _resize_rows(levels[0, first:last], right, scales[1])
    # Rows before the first stay undefined. They only reach resized rows that are cut off.
    columns = rows.new_empty((last, part.width + -part.width % 4))
    columns[first:, : part.width] = rows[:, part.left :]
    groups = columns.view(1, last, -1, 4).permute(0, 3, 1, 2)
    resized = _upsample(groups, (bottom, groups.shape[3]), (scales[0], 1.0))
    return resized.permute(0, 2, 3, 1).reshape(1, bottom, -1)[:, part.top :, : part.width]


def _resize_rows(levels: torch.Tensor, width: int, scale: float) -> torch.Tensor:
    """The first `width` px of all rows of (h, w), resized by `scale`: uint8 (h, width)."""
    height, given = levels.shape
    groups = torch.nn.functional.pad(levels, (0, 0, 0, -height % 4)).reshape(1, 4, -1, given)
    resized = _upsample(groups, (groups.shape[2], width), (1.0, scale))
    return resized.reshape(-1, width)[:height]


def _upsample(pixels: torch.Tensor, size: Size, scales: tuple[float, float]) -> torch.Tensor:
    """The first `size` px of (n, c, h, w) resized by `scales`, with torch's kernel."""
    # torch skips a side that keeps its size; a part may do so by chance, so it gets a px more.
    grown = [
        length + (length == given and scale != 1)
        for length, given, scale in zip(size, pixels.shape[2:], scales, strict=True)
    ]
    resized = torch.ops.aten._upsample_bicubic2d_aa(pixels, grown, False, *scales)
    return resized[:, :, : size[0], : size[1]]


def resized_size(height: int, width: int, shorter_px: int) -> list[int]:
    """[height, width] with the shorter side at `shorter_px`, rounded as in torchvision."""
    longer_px = shorter_px * max(height, width) // min(height, width)
    return [longer_px, shorter_px] if height > width else [shorter_px, longer_px]


def crop_centre(pixels: torch.Tensor, side_px: int) -> torch.Tensor:
    """The middle `side_px` x `side_px` of (c, h, w)."""
    return cut(pixels, *centre(pixels.shape[-2:], side_px))


def centre(size: Sequence[int], side_px: int) -> Box:
    """The middle square of a (height, width), rounded as torchvision's CenterCrop."""
    top, left = (round((length - side_px) / 2) for length in size)
    return Box(top, left, side_px, side_px)


def cut(pixels: torch.Tensor, top: int, left: int, height: int, width: int) -> torch.Tensor:
    """A part of (c, h, w)."""
    return pixels[:, top : top + height, left : left + width]


def crop(pixels: torch.Tensor, side_px: int, draw: Draw) -> torch.Tensor:
    """The random crop of (c, h, w), or its centre, at `side_px` x `side_px`."""
    box = draw.box(*pixels.shape[-2:])
    if box:
        return resize_to(cut(pixels, *box), [side_px, side_px])
    resized = resized_size(pixels.shape[-2], pixels.shape[-1], side_px)
    return crop_centre(resize_to(pixels, resized), side_px)


def crop_levels(levels: torch.Tensor, size: Size, side_px: int, draw: Draw) -> torch.Tensor:
    """`crop` of uint8 (c, h, w), which may be smaller than the picture's `size` in its file."""
    box = draw.box(*size)
    if box is None:
        resized = resized_size(*size, side_px)
        return resize_part(levels, resized, centre(resized, side_px))
    levels = cut(levels, *box.scaled(size, (levels.shape[1], levels.shape[2])))
    return resize_part(levels, (side_px, side_px), Box(0, 0, side_px, side_px))


def recolour(pixels: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Change brightness, then contrast, then saturation of (n, 3, h, w) in 0 to 1, like
    torchvision's functions of these names on float tensors; `factors` is (n, 3)."""
    brightness, contrast, saturation = factors.to(pixels).view(-1, 3, 1, 1, 1).unbind(1)
    luma = torch.tensor(LUMA, dtype=pixels.dtype, device=pixels.device).view(3, 1, 1)
    pixels = (pixels * brightness).clamp_(0, 1)
    grey = (pixels * luma).sum(1, keepdim=True).mean((2, 3), keepdim=True)
    pixels = (pixels * contrast + grey * (1 - contrast)).clamp_(0, 1)
    grey = (pixels * luma).sum(1, keepdim=True)
    return (pixels * saturation + grey * (1 - saturation)).clamp_(0, 1)


class Finish:
    """The last step to the model's pixels, the same for all decode paths and kinds of device:
    colours change as drawn, and uint8 becomes normalised float32. It runs where the batch is: on
    the device, or in the loader if float32 is transferred."""

    def __init__(self, mean: Statistics, std: Statistics) -> None:
        self._mean = torch.tensor(mean).view(3, 1, 1)
        self._std = torch.tensor(std).view(3, 1, 1)
        self._scale = 1 / (LEVELS * self._std)
        self._shift = -self._mean / self._std

    def pixels(self, pixels: torch.Tensor, colour: torch.Tensor | None = None) -> torch.Tensor:
        """Normalise (n, 3, h, w), uint8 or float32 in 0 to 1, to float32; `colour` is (n, 3)."""
        if self._mean.device != pixels.device:
            parts = (self._mean, self._std, self._scale, self._shift)
            self._mean, self._std, self._scale, self._shift = (p.to(pixels.device) for p in parts)
        if colour is not None:
            scale = LEVELS if pixels.dtype == torch.uint8 else 1
            pixels = recolour(pixels.float() / scale, colour)
        if pixels.dtype == torch.uint8:
            return torch.addcmul(self._shift, pixels.float(), self._scale)
        return (pixels - self._mean).div_(self._std)

    def __call__(self, batch: Batch) -> Batch:
        """The batch for the model; a finished one stays unchanged."""
        pixels = batch.get("pixel_values")
        if pixels is None or pixels.dtype != torch.uint8:
            return batch
        rest = {name: value for name, value in batch.items() if name != "colour"}
        return rest | {"pixel_values": self.pixels(pixels, batch.get("colour"))}
