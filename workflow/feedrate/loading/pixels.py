"""From a JPEG file to the model's pixels, as the published script does it on the host.

The script (optimum-habana, run_bridgetower.py) decodes with PIL, converts to float32 at full
size, resizes the shorter side with antialiased bicubic, crops the centre and normalises, all with
torchvision. torch's own functions give the same numbers without that dependency.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from feedrate.data.manifest import DataError
from feedrate.loading.augment import NOTHING, Draw, recolour

LEVELS = 255


def decode(path: str | Path) -> torch.Tensor:
    """Read an image as RGB: float32 in 0 to 1, shape (3, height, width).

    Raises DataError naming the file where it is missing or damaged.
    """
    try:
        with Image.open(path) as image:
            levels = np.array(image.convert("RGB"))
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{path}: cannot be decoded ({error}); prepare the data again") from error
    return torch.from_numpy(levels).permute(2, 0, 1).contiguous().to(torch.float32).div_(LEVELS)


def resize(pixels: torch.Tensor, shorter_px: int) -> torch.Tensor:
    """Resize (3, h, w) so that the shorter side is `shorter_px`; overshoot is kept, not clipped.

    Equal to torchvision's Resize(shorter_px, BICUBIC, antialias=True) on float tensors.
    """
    return resize_to(pixels, resized_size(pixels.shape[-2], pixels.shape[-1], shorter_px))


def resize_to(pixels: torch.Tensor, size: list[int]) -> torch.Tensor:
    """Antialiased bicubic resize of (c, h, w) to [height, width]; uint8 clips what overshoots."""
    return torch.nn.functional.interpolate(
        pixels[None], size=size, mode="bicubic", align_corners=False, antialias=True
    )[0]


def resized_size(height: int, width: int, shorter_px: int) -> list[int]:
    """[height, width] with the shorter side at `shorter_px`, by torchvision's rule of rounding."""
    longer_px = shorter_px * max(height, width) // min(height, width)
    return [longer_px, shorter_px] if height > width else [shorter_px, longer_px]


def crop_centre(pixels: torch.Tensor, side_px: int) -> torch.Tensor:
    """The middle `side_px` x `side_px` of (3, h, w), rounded as torchvision's CenterCrop."""
    height, width = pixels.shape[-2:]
    top, left = round((height - side_px) / 2), round((width - side_px) / 2)
    return pixels[:, top : top + side_px, left : left + side_px]


def cut(pixels: torch.Tensor, top: int, left: int, height: int, width: int) -> torch.Tensor:
    """A part of (c, h, w)."""
    return pixels[:, top : top + height, left : left + width]


def normalise(pixels: torch.Tensor, mean: torch.Tensor, std: torch.Tensor) -> torch.Tensor:
    """(pixels - mean) / std by channel; `mean` and `std` have shape (3, 1, 1)."""
    return (pixels - mean).div_(std)


# From an image file to uint8 pixels, fast: the level `host`, and what the level `cache` stores.
# libjpeg-turbo decodes (through simplejpeg, which brings it along), one channel where the file
# has one; torch resizes in uint8 with antialiased bicubic weights, which is Pillow's resize but
# for rounding (mean absolute difference 0.003 of 255). What libjpeg-turbo does not take goes
# through Pillow, with the same pixels.

Size = tuple[int, int]
"""Height and width, px."""

_COLOURS = {"Gray": "GRAY", "YCbCr": "RGB", "RGB": "RGB"}
"""Colour spaces of JPEG files to what is decoded; CMYK and YCCK are left to Pillow."""


def read_pixels(path: Path, side_px: int, draw: Draw = NOTHING, *, scaled: bool) -> torch.Tensor:
    """The picture's crop: uint8, shape (1 or 3, side_px, side_px).

    `scaled`: the decoder may shrink by a power of two first. Raises DataError naming a file that
    cannot be decoded.
    """
    levels, size = read_levels(path, side_px if scaled else None, draw)
    box = draw.box(*size)
    if box is None:
        return crop_centre(resize_to(levels, resized_size(*size, side_px)), side_px)
    part = box.scaled(size, (levels.shape[1], levels.shape[2]))
    return resize_to(cut(levels, *part), [side_px, side_px])


def read_levels(
    path: Path, shrink_to_px: int | None = None, draw: Draw = NOTHING
) -> tuple[torch.Tensor, Size]:
    """All of a picture: uint8 of shape (1 or 3, h, w), and the size of the file's picture.

    With `shrink_to_px` the decoder halves it as often as the part that is wanted stays that large.
    """
    import simplejpeg  # not for those who only read the reference

    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be decoded ({error}); prepare the data again") from error
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
        options = {}
        if shrink_to_px is not None:
            part = draw.box(height, width)
            shorter = min(part.height, part.width) if part else min(height, width)
            factor = _halvings(shorter, shrink_to_px)
            options = {"min_height": -(-height // factor), "min_width": -(-width // factor)}
        levels = simplejpeg.decode_jpeg(data, _COLOURS[colours], **options)
    except (ValueError, KeyError):
        levels = _with_pillow(path)
        height, width = levels.shape[:2]
    return torch.from_numpy(levels).permute(2, 0, 1), (height, width)


def _halvings(shorter_px: int, wanted_px: int) -> int:
    """1, 2, 4 or 8: the other scales of libjpeg-turbo are slower than a full decode."""
    return max((n for n in (1, 2, 4, 8) if shorter_px // n >= wanted_px), default=1)


def _with_pillow(path: Path) -> np.ndarray:
    """(h, w, 1 or 3); damaged files end here, as they do in the reference."""
    try:
        with Image.open(path) as image:
            levels = np.array(image if image.mode == "L" else image.convert("RGB"))
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{path}: cannot be decoded ({error}); prepare the data again") from error
    return levels[:, :, None] if levels.ndim == 2 else levels


# The last step to the model's pixels, in one place for all levels and kinds of device.
# It runs where the batch is: on the device, or in the loader where float32 is transferred.

Statistics = tuple[float, float, float]
Batch = dict[str, Any]


class Finish:
    """Makes float32 pixels of uint8 ones, with the colours that were drawn, normalised."""

    def __init__(self, mean: Statistics, std: Statistics) -> None:
        self._mean = torch.tensor(mean).view(3, 1, 1)
        self._std = torch.tensor(std).view(3, 1, 1)
        self._scale = 1 / (LEVELS * self._std)
        self._shift = -self._mean / self._std

    def pixels(self, pixels: torch.Tensor, colour: torch.Tensor | None = None) -> torch.Tensor:
        """(n, 3, h, w), uint8 or float32 in 0 to 1, to normalised float32; `colour` is (n, 3)."""
        if self._mean.device != pixels.device:
            parts = (self._mean, self._std, self._scale, self._shift)
            self._mean, self._std, self._scale, self._shift = (p.to(pixels.device) for p in parts)
        if colour is not None:
            scale = LEVELS if pixels.dtype == torch.uint8 else 1
            pixels = recolour(pixels.float() / scale, colour)
        if pixels.dtype == torch.uint8:
            return torch.addcmul(self._shift, pixels.float(), self._scale)
        return normalise(pixels, self._mean, self._std)

    def __call__(self, batch: Batch) -> Batch:
        """A batch as the model takes it; one that is finished stays as it is."""
        pixels = batch.get("pixel_values")
        if pixels is None or pixels.dtype != torch.uint8:
            return batch
        rest = {name: value for name, value in batch.items() if name != "colour"}
        return rest | {"pixel_values": self.pixels(pixels, batch.get("colour"))}
