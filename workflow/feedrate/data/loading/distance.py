"""How far a level's pixels are from the reference's: told beside every number that it makes."""

import copy
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch

from feedrate.data.loading.augment import NOTHING, Augmentation
from feedrate.data.loading.pairs import PairDataset
from feedrate.data.loading.path import LoadingPath
from feedrate.data.loading.pixels import LEVELS
from feedrate.data.loading.readers import ReadReference

PICTURES = 16
"""As many are compared, evenly chosen from the split; it takes about 0.2 s."""


class Distance(NamedTuple):
    """Over all pixels and channels of the pictures compared."""

    mean_abs_diff: float
    """In levels of 0 to 255. Rounding to levels and clipping overshoot alone give 0.2 to 0.35."""
    psnr_db: float | None
    """10 log10(255^2 / mean squared difference); None where nothing differs."""


class OneBatch:
    """The order that has these rows once."""

    def __init__(self, rows: list[int]) -> None:
        self.rows, self.batch_size = rows, len(rows)

    def __len__(self) -> int:
        """One."""
        return 1

    def __iter__(self) -> Iterator[list[int]]:
        """The batch."""
        yield self.rows


def distance(dataset: PairDataset, path: LoadingPath) -> Distance:
    """Of the path's pixels, without augmentation, to the reference's."""
    rows = list(range(0, len(dataset), max(1, len(dataset) // PICTURES)))[:PICTURES]
    reference = ReadReference(dataset.paths, dataset.image_px)
    wanted = torch.stack([reference(row, NOTHING) for row in rows]) * LEVELS
    off = (_levels(dataset, path, rows).double() - wanted.double()).abs()
    squared = float(off.square().mean())
    psnr = 10 * math.log10(LEVELS**2 / squared) if squared else None
    return Distance(float(off.mean()), psnr)


def _levels(dataset: PairDataset, path: LoadingPath, rows: list[int]) -> torch.Tensor:
    """What the path makes of these rows, in levels of 0 to 255; (rows, 3, h, w)."""
    if path.decode != "device":
        crops = [dataset.read(row, NOTHING).expand(dataset.shape) for row in rows]
        pixels = torch.stack(crops)
        return pixels if pixels.dtype == torch.uint8 else pixels * LEVELS
    unchanged = copy.copy(dataset)
    unchanged.augmentation = Augmentation(seed=0)
    (batch,) = path.batches(unchanged, OneBatch(rows))
    mean, std = (torch.tensor(value).view(3, 1, 1) for value in (dataset.mean, dataset.std))
    return (batch["pixel_values"].cpu() * std + mean) * LEVELS
