"""What a model's outputs are worth: retrieval, multiple choice, classes. Plain arrays in and out.

What ties with the right answer counts as wrong, and so does what is not a number: a model that
gives everything the same score knows nothing.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]
Hits = NDArray[np.bool_]

_ROWS = 1024
"""Queries scored at once, so that a large split needs no square of its size."""


def ranks(queries: Floats, targets: Floats, of_query: Numbers, of_target: Numbers) -> Numbers:
    """How many wrong targets each query (n,) finds at least as near as its nearest right one.

    `queries` (n, d) and `targets` (m, d) are normalised, and near is a large dot product;
    `of_query` (n,) and `of_target` (m,) name groups, and a target of the query's group is right:
    any caption of an image is a match for it. A query without a right target has rank m.
    """
    found = np.empty(len(queries), dtype=np.int64)
    for start in range(0, len(queries), _ROWS):
        some = slice(start, start + _ROWS)
        scores = queries[some] @ targets.T
        right = of_query[some, None] == of_target[None, :]
        best = np.where(right, scores, -np.inf).max(axis=1, keepdims=True)
        # Not "as large as": a score that is no number is not below anything.
        found[some] = (~right & ~(scores < best)).sum(axis=1)
    return found


def chance_of_recall(of_query: Numbers, of_target: Numbers, k: int) -> float:
    """Mean share of queries that find a right target among k drawn by chance, none twice."""
    targets = len(of_target)
    _, place, sizes = np.unique(of_target, return_inverse=True, return_counts=True)
    size_of = dict(zip(of_target.tolist(), sizes[place].tolist(), strict=True))
    missed = np.ones(len(of_query))
    right = np.array([size_of.get(group, 0) for group in of_query.tolist()])
    for drawn in range(min(k, targets)):
        missed *= np.clip(targets - right - drawn, 0, None) / (targets - drawn)
    return float(1 - missed.mean())


def choice_hits(scores: Floats, labels: Numbers) -> Hits:
    """Whether in each row of `scores` (n, choices) that of `labels` (n,) alone is the largest."""
    rows = np.arange(len(scores))
    below = scores < scores[rows, labels][:, None]
    below[rows, labels] = True
    hits: Hits = below.all(axis=1) & ~np.isnan(scores[rows, labels])
    return hits


def known_classes(logits: Floats, classes: Numbers) -> Hits:
    """Of the rows whose class was trained on (`classes` >= 0), whether it has the largest logit."""
    known = classes >= 0
    return choice_hits(logits[known], classes[known])


# Percentile-bootstrap intervals of means.

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


# One figure of quality.json, as the readers in results/ expect it.

Entry = dict[str, Any]


def entry(
    metric: str,
    found: Estimate | None,
    n: int,
    *,
    chance: float | None = None,
    note: str = "",
) -> Entry:
    """A metric's mean over `n` with its interval and what chance gives.

    A value that is not a finite number is none: a model that diverged has no score.
    """
    value, low, high = found or (None, None, None)
    if value is not None and not math.isfinite(value):
        return _entry(metric, (None, None, None), n, chance, "not a finite number")
    return _entry(metric, (value, _finite(low), _finite(high)), n, chance, note)


def _entry(
    metric: str, found: tuple[Any, Any, Any], n: int, chance: float | None, note: str
) -> Entry:
    ends = dict(zip(("value", "low", "high"), found, strict=True))
    return {"metric": metric, **ends, "n": n, "chance": chance, "note": note}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
