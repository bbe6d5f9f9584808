"""From a JPEG file to the model's pixels.

The published script (optimum-habana, run_bridgetower.py) decodes with Pillow, converts to float32
at full size, resizes the shorter side with antialiased bicubic, crops the centre and normalises,
all with torchvision. torch's own functions give the same numbers.
"""

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

from feedrate.data.manifest import DataError
from feedrate.loading.stages import span

LEVELS = 255

Statistics = tuple[float, float, float]
Size = tuple[int, int]  # height and width, px
Batch = dict[str, Any]  # tensors by the names of the model's arguments, and `return_loss`


class Box(NamedTuple):
    """Part of a picture, px."""

    top: int
    left: int
    height: int
    width: int


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
    """The part of `resize_to(levels, size)`, uint8 (c, h, w), but only that part is computed. A
    level differs by at most 1, where rounding of the scale shows. torch is fast only with 3 or 4
    channels, so four rows of a grey picture are resized as the channels of one."""
    channels, height, width = levels.shape
    bottom, right = part.top + part.height, part.left + part.width
    scales = size[0] / height, size[1] / width
    # The input rows on which the part depends.
    row_scale = height / size[0]
    support = 2 * max(1.0, row_scale) + 1  # of the cubic kernel, and one row more
    first = max(0, math.floor(row_scale * (part.top + 0.5) - support))
    last = min(height, math.ceil(row_scale * (bottom - 0.5) + support))
    if channels > 1:
        rows = levels[:, :last].permute(1, 2, 0).contiguous()
        pixels = rows[None].permute(0, 3, 1, 2)  # with the strides of channels_last
        return _upsample(pixels, (bottom, right), scales)[0, :, part.top :, part.left :]
    # First all rows to the part's width, as if they were the channels of a picture of four.
    strip = torch.nn.functional.pad(levels[0, first:last], (0, 0, 0, -(last - first) % 4))
    groups = strip.reshape(1, 4, -1, width)
    rows = _upsample(groups, (groups.shape[2], right), (1.0, scales[1])).reshape(-1, right)
    # Rows before the first stay undefined. They only reach resized rows that are cut off.
    columns = rows.new_empty((last, part.width + -part.width % 4))
    columns[first:, : part.width] = rows[: last - first, part.left :]
    groups = columns.view(1, last, -1, 4).permute(0, 3, 1, 2)
    resized = _upsample(groups, (bottom, groups.shape[3]), (scales[0], 1.0))
    return resized.permute(0, 2, 3, 1).reshape(1, bottom, -1)[:, part.top :, : part.width]


def _upsample(pixels: torch.Tensor, size: Size, scales: tuple[float, float]) -> torch.Tensor:
    """The first `size` px of (n, c, h, w) resized by `scales`, with torch's kernel."""
    # torch skips a side that keeps its size; a part may do so by chance, so it gets a px more.
    sides = [
        after + (after == before and scale != 1)
        for after, before, scale in zip(size, pixels.shape[2:], scales, strict=True)
    ]
    resized = torch.ops.aten._upsample_bicubic2d_aa(pixels, sides, False, *scales)
    return resized[:, :, : size[0], : size[1]]


def resized_size(height: int, width: int, shorter_px: int) -> list[int]:
    """[height, width] with the shorter side at `shorter_px`, rounded as in torchvision."""
    longer_px = shorter_px * max(height, width) // min(height, width)
    return [longer_px, shorter_px] if height > width else [shorter_px, longer_px]


def centre(size: Sequence[int], side_px: int) -> Box:
    """The middle square of a (height, width), rounded as torchvision's CenterCrop."""
    top, left = (round((length - side_px) / 2) for length in size)
    return Box(top, left, side_px, side_px)


def crop_centre(pixels: torch.Tensor, side_px: int) -> torch.Tensor:
    """The middle `side_px` x `side_px` of (c, h, w)."""
    top, left, height, width = centre(pixels.shape[-2:], side_px)
    return pixels[:, top : top + height, left : left + width]


def crop(pixels: torch.Tensor, side_px: int) -> torch.Tensor:
    """The centre of (c, h, w), resized to `side_px` x `side_px`."""
    resized = resized_size(pixels.shape[-2], pixels.shape[-1], side_px)
    return crop_centre(resize_to(pixels, resized), side_px)


def crop_levels(levels: torch.Tensor, size: Size, side_px: int) -> torch.Tensor:
    """`crop` of uint8 (c, h, w), which may be smaller than the picture's `size` in its file."""
    resized = resized_size(*size, side_px)
    return resize_part(levels, resized, centre(resized, side_px))


class Finish:
    """The last step to the model's pixels, the same for all decode paths and devices: uint8 becomes
    normalised float32. It runs on the device, or in the loader if float32 is transferred."""

    def __init__(self, mean: Statistics, std: Statistics) -> None:
        self._mean = torch.tensor(mean).view(3, 1, 1)
        self._std = torch.tensor(std).view(3, 1, 1)
        self._scale = 1 / (LEVELS * self._std)
        self._shift = -self._mean / self._std

    def pixels(self, pixels: torch.Tensor) -> torch.Tensor:
        """Normalise (n, 3, h, w), uint8 or float32 in 0 to 1, to float32."""
        if self._mean.device != pixels.device:
            parts = (self._mean, self._std, self._scale, self._shift)
            self._mean, self._std, self._scale, self._shift = (p.to(pixels.device) for p in parts)
        if pixels.dtype == torch.uint8:
            return torch.addcmul(self._shift, pixels.float(), self._scale)
        return (pixels - self._mean).div_(self._std)

    def __call__(self, batch: Batch) -> Batch:
        """The batch for the model; a finished one stays unchanged."""
        pixels = batch.get("pixel_values")
        if pixels is None or pixels.dtype != torch.uint8:
            return batch
        return batch | {"pixel_values": self.pixels(pixels)}
