"""How far a level's pixels are from the reference's: reported with every number of that level."""

import copy
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch

from feedrate.loading.augment import NOTHING, Augmentation
from feedrate.loading.dataset import PairDataset
from feedrate.loading.path import LoadingPath
from feedrate.loading.pixels import LEVELS, crop, decode

PICTURES = 16
"""Pictures that are compared, evenly chosen from the split; it takes about 0.2 s."""


class Distance(NamedTuple):
    """Over all pixels and channels of the compared pictures."""

    mean_abs_diff: float
    """In levels of 0 to 255. Rounding to levels and clipping overshoot alone give 0.2 to 0.35."""
    psnr_db: float | None
    """10 log10(255^2 / mean squared difference); None if nothing differs."""


class OneBatch:
    """An order of one batch."""

    def __init__(self, rows: list[int]) -> None:
        self.rows, self.batch_size = rows, len(rows)

    def __len__(self) -> int:
        """One."""
        return 1

    def __iter__(self) -> Iterator[list[int]]:
        """The batch."""
        yield self.rows


def distance(dataset: PairDataset, path: LoadingPath) -> Distance:
    """From the path's pixels, without augmentation, to the reference's."""
    rows = list(range(0, len(dataset), max(1, len(dataset) // PICTURES)))[:PICTURES]
    reference = [crop(decode(dataset.paths[row]), dataset.image_px, NOTHING) for row in rows]
    wanted = torch.stack(reference) * LEVELS
    off = (_levels(dataset, path, rows).double() - wanted.double()).abs()
    squared = float(off.square().mean())
    psnr = 10 * math.log10(LEVELS**2 / squared) if squared else None
    return Distance(float(off.mean()), psnr)


def _levels(dataset: PairDataset, path: LoadingPath, rows: list[int]) -> torch.Tensor:
    """The path's pixels of these rows, in levels of 0 to 255; (rows, 3, h, w)."""
    if path.decode != "device":
        crops = [dataset.read(row, NOTHING).expand(dataset.shape) for row in rows]
        pixels = torch.stack(crops)
        return pixels if pixels.dtype == torch.uint8 else pixels * LEVELS
    unchanged = copy.copy(dataset)
    unchanged.augmentation = Augmentation(seed=0)
    (batch,) = path.batches(unchanged, OneBatch(rows))
    mean, std = (torch.tensor(value).view(3, 1, 1) for value in (dataset.mean, dataset.std))
    return (batch["pixel_values"].cpu() * std + mean) * LEVELS
