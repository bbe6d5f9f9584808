"""How far a level's pixels are from the reference's: told beside every number that it makes."""

import math
from typing import NamedTuple

import torch

from feedrate.data.loading.augment import NOTHING
from feedrate.data.loading.pairs import PairDataset
from feedrate.data.loading.pixels import LEVELS, crop_centre, decode, resize

PICTURES = 16
"""As many are compared, evenly chosen from the split; it takes about 0.2 s."""


class Distance(NamedTuple):
    """Over all pixels and channels of the pictures compared."""

    mean_abs_diff: float
    """In levels of 0 to 255. Rounding to levels and clipping overshoot alone give 0.2 to 0.35."""
    psnr_db: float | None
    """10 log10(255^2 / mean squared difference); None where nothing differs."""


def distance(dataset: PairDataset) -> Distance:
    """Of the dataset's pixels, without augmentation, to the reference's."""
    rows = range(0, len(dataset), max(1, len(dataset) // PICTURES))[:PICTURES]
    count, absolute, squared = 0, 0.0, 0.0
    for row in rows:
        pixels = decode(dataset.prepared / dataset.images[row])
        wanted = crop_centre(resize(pixels, dataset.image_px), dataset.image_px) * LEVELS
        found = dataset.read(row, NOTHING)
        scale = 1 if found.dtype == torch.uint8 else LEVELS
        off = (found.expand(dataset.shape).double() * scale - wanted.double()).abs()
        count += off.numel()
        absolute += float(off.sum())
        squared += float(off.square().sum())
    psnr = 10 * math.log10(LEVELS**2 * count / squared) if squared else None
    return Distance(absolute / count, psnr)
