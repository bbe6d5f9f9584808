"""Random crops, flips and colours, which follow from seed, epoch and row alone.

So every decode level changes the same sample in the same way, with any number of workers and ranks,
and after a resume.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from feedrate.config.settings import LoaderSettings

ASPECTS = (3 / 4, 4 / 3)
"""Aspect ratios of a random crop, and tries to fit one in: torchvision's RandomResizedCrop."""
TRIES = 10

LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in grey (ITU-R BT.601), as in Pillow's and torchvision's."""


class Box(NamedTuple):
    """Part of a picture, in px."""

    top: int
    left: int
    height: int
    width: int

    def scaled(self, full: tuple[int, int], here: tuple[int, int]) -> "Box":
        """The same part if the picture has the size `here` instead of `full` (height, width)."""
        if full == here:
            return self
        top, bottom = _scaled(self.top, self.height, full[0], here[0])
        left, right = _scaled(self.left, self.width, full[1], here[1])
        return Box(top, left, bottom - top, right - left)


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

    @classmethod
    def of(cls, loader: LoaderSettings, seed: int) -> "Augmentation":
        """The augmentation of these settings."""
        return cls(seed, loader.random_crop, loader.random_flip, loader.colour_jitter)

    def __bool__(self) -> bool:
        """Whether anything changes."""
        return bool(self.min_area or self.flip or self.jitter)

    def draw(self, epoch: int, row: int) -> Draw:
        """The changes of `row` in `epoch`."""
        if not self:
            return NOTHING
        seed = (self.seed, epoch, row)
        rng = np.random.default_rng((*seed, 0))
        flip = bool(rng.random() < 0.5) and self.flip
        brightness, contrast, saturation = 1 + self.jitter * rng.uniform(-1, 1, 3)
        colour = (float(brightness), float(contrast), float(saturation))
        return Draw(seed, self.min_area, flip, colour)


def recolour(pixels: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Brightness, then contrast, then saturation of (n, 3, h, w) in 0 to 1; `factors` is (n, 3).

    As torchvision's functions of these names on float tensors.
    """
    brightness, contrast, saturation = factors.to(pixels).view(-1, 3, 1, 1, 1).unbind(1)
    luma = torch.tensor(LUMA, dtype=pixels.dtype, device=pixels.device).view(3, 1, 1)
    pixels = (pixels * brightness).clamp_(0, 1)
    grey = (pixels * luma).sum(1, keepdim=True).mean((2, 3), keepdim=True)
    pixels = (pixels * contrast + grey * (1 - contrast)).clamp_(0, 1)
    grey = (pixels * luma).sum(1, keepdim=True)
    return (pixels * saturation + grey * (1 - saturation)).clamp_(0, 1)


def _scaled(start: int, length: int, full: int, here: int) -> tuple[int, int]:
    """Start and end of an interval at another scale, at least one px long."""
    first = min(round(start * here / full), here - 1)
    return first, max(first + 1, min(here, round((start + length) * here / full)))
