"""Percentile-bootstrap intervals of means."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

RESAMPLES = 4_000
CONFIDENCE = 0.95
_SEED = 20
_CHUNK = 2**22
"""Values drawn at once: a resample more needs no memory of its own."""


class Estimate(NamedTuple):
    """A mean and its interval."""

    value: float
    low: float
    high: float


def mean_interval(
    values: ArrayLike, confidence: float = CONFIDENCE, groups: ArrayLike | None = None
) -> Estimate:
    """Mean of `values` (n,) with the percentile-bootstrap interval at `confidence`.

    Values that hang together (captions of one image) share a number in `groups` (n,) and are drawn
    together; None: each stands for itself. Deterministic. Where all values are equal the interval
    has no width. Raises ValueError for no value.
    """
    data = np.asarray(values, dtype=float)
    if not data.size:
        raise ValueError("no values to take a mean of")
    place = np.arange(data.size) if groups is None else np.unique(groups, return_inverse=True)[1]
    sums, counts = np.bincount(place, weights=data), np.bincount(place)
    draw = np.random.default_rng(_SEED)
    rows = max(1, _CHUNK // sums.size)
    means = []
    for done in range(0, RESAMPLES, rows):
        drawn = draw.integers(sums.size, size=(min(rows, RESAMPLES - done), sums.size))
        means.append(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1))
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return Estimate(float(data.mean()), float(low), float(high))
