"""Scores of a model's outputs: retrieval, multiple choice, classes. Plain arrays in and out.

An answer that ties with the right one counts as wrong, and so does one that is not a number: a
model that gives everything the same score knows nothing.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]
Hits = NDArray[np.bool_]

_ROWS = 1024
"""Queries scored at once: all of a large split at once would take a square of its size."""


def ranks(queries: Floats, targets: Floats, of_query: Numbers, of_target: Numbers) -> Numbers:
    """The number of wrong targets that are at least as near to each query (n,) as its nearest right
    one.

    `queries` (n, d) and `targets` (m, d) are normalised, and near means a large dot product.
    `of_query` (n,) and `of_target` (m,) number groups; the targets of a query's group are right, as
    any caption of an image matches it. A query without a right target has rank m.
    """
    found = np.empty(len(queries), dtype=np.int64)
    for start in range(0, len(queries), _ROWS):
        some = slice(start, start + _ROWS)
        scores = queries[some] @ targets.T
        right = of_query[some, None] == of_target[None, :]
        best = np.where(right, scores, -np.inf).max(axis=1, keepdims=True)
        # Not "at least": a score that is not a number is below nothing, and counts against it.
        found[some] = (~right & ~(scores < best)).sum(axis=1)
    return found


def chance_of_recall(of_query: Numbers, of_target: Numbers, k: int) -> float:
    """Mean share of queries that find a right target among k drawn without replacement."""
    targets = len(of_target)
    _, place, sizes = np.unique(of_target, return_inverse=True, return_counts=True)
    size_of = dict(zip(of_target.tolist(), sizes[place].tolist(), strict=True))
    missed = np.ones(len(of_query))
    right = np.array([size_of.get(group, 0) for group in of_query.tolist()])
    for drawn in range(min(k, targets)):
        missed *= np.clip(targets - right - drawn, 0, None) / (targets - drawn)
    return float(1 - missed.mean())


def choice_hits(scores: Floats, labels: Numbers) -> Hits:
    """Whether each row of `scores` (n, choices) is largest at its label (n,), and nowhere else."""
    rows = np.arange(len(scores))
    below = scores < scores[rows, labels][:, None]
    below[rows, labels] = True
    hits: Hits = below.all(axis=1) & ~np.isnan(scores[rows, labels])
    return hits


def known_classes(logits: Floats, classes: Numbers) -> Hits:
    """Whether the class has the largest logit, for the rows whose class was trained on (>= 0)."""
    known = classes >= 0
    return choice_hits(logits[known], classes[known])


RESAMPLES = 4_000
CONFIDENCE = 0.95
_SEED = 20
_CHUNK = 2**22
"""Values drawn at once, which bounds the memory that resampling takes."""


class Estimate(NamedTuple):
    """A mean and its interval."""

    value: float
    low: float
    high: float


def mean_interval(
    values: ArrayLike, confidence: float = CONFIDENCE, groups: ArrayLike | None = None
) -> Estimate:
    """Mean of `values` (n,) with the percentile-bootstrap interval at `confidence`.

    Dependent values (captions of one image) share a number in `groups` (n,) and are drawn together;
    None: all are independent. Deterministic. Where all values are equal the interval has no width.
    Raises ValueError for no value.
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


Entry = dict[str, Any]
"""One figure of quality.json, as the reader in results/ expects it."""


def entry(
    metric: str,
    found: Estimate | None,
    n: int,
    *,
    chance: float | None = None,
    note: str = "",
) -> Entry:
    """A metric's mean over `n` with its interval, and the value that chance gives.

    A value that is not finite is left out: a model that diverged has no score.
    """
    value, low, high = found or (None, None, None)
    if value is not None and not math.isfinite(value):
        value, low, high, note = None, None, None, "not a finite number"
    low, high = (x if x is not None and math.isfinite(x) else None for x in (low, high))
    ends = {"value": value, "low": low, "high": high}
    return {"metric": metric, **ends, "n": n, "chance": chance, "note": note}
