"""From a JPEG file to the model's pixels, as the published script does it on the host.

The script (optimum-habana, run_bridgetower.py) decodes with PIL, converts to float32 at full
size, resizes the shorter side with antialiased bicubic, crops the centre and normalises, all with
torchvision. torch's own functions give the same numbers without that dependency.
"""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from feedrate.data.manifest import DataError

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
