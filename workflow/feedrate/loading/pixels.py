"""From a JPEG file to the model's pixels, as the published script does it on the host.

The script (optimum-habana, run_bridgetower.py) decodes with Pillow, converts to float32 at full
size, resizes the shorter side with antialiased bicubic, crops the centre and normalises, all with
torchvision. torch's own functions give the same numbers without torchvision.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from feedrate.data.manifest import DataError
from feedrate.loading.augment import Draw, recolour

LEVELS = 255


@contextmanager
def decoding(path: str | Path) -> Iterator[None]:
    """Raise DataError, which names the file, if it cannot be read or decoded."""
    try:
        yield
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{path}: cannot be decoded ({error}); prepare the data again") from error


def decode(path: str | Path) -> torch.Tensor:
    """Read an image as RGB: float32 in 0 to 1, shape (3, height, width).

    Raises DataError, which names the file, if it is missing or damaged.
    """
    with decoding(path), Image.open(path) as image:
        levels = np.array(image.convert("RGB"))
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


def crop(pixels: torch.Tensor, side_px: int, draw: Draw) -> torch.Tensor:
    """The random crop of (c, h, w), or its centre, at `side_px` x `side_px`."""
    box = draw.box(*pixels.shape[-2:])
    if box:
        return resize_to(cut(pixels, *box), [side_px, side_px])
    return crop_centre(resize(pixels, side_px), side_px)


def normalise(pixels: torch.Tensor, mean: torch.Tensor, std: torch.Tensor) -> torch.Tensor:
    """(pixels - mean) / std by channel; `mean` and `std` have shape (3, 1, 1)."""
    return (pixels - mean).div_(std)


Statistics = tuple[float, float, float]
Batch = dict[str, Any]


class Finish:
    """The last step to the model's pixels, for all levels and kinds of device: colours are changed
    as drawn, and uint8 becomes normalised float32.

    It runs where the batch is: on the device, or in the loader if float32 is transferred.
    """

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
        """The batch for the model; a finished one stays unchanged."""
        pixels = batch.get("pixel_values")
        if pixels is None or pixels.dtype != torch.uint8:
            return batch
        rest = {name: value for name, value in batch.items() if name != "colour"}
        return rest | {"pixel_values": self.pixels(pixels, batch.get("colour"))}
