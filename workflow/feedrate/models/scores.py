"""What a model's outputs are worth: retrieval, multiple choice, classes. Plain arrays in and out.

What ties with the right answer counts as wrong, and so does what is not a number: a model that
gives everything the same score knows nothing.
"""

import numpy as np
from numpy.typing import NDArray

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
