"""Evaluation of a split with the Trainer's model: recall of embeddings, or accuracy of classes.

A tie with the right answer counts as wrong, and so does a score that is not a number: a model that
gives everything the same score knows nothing.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from feedrate.jobs.events import Evaluation, EventLog
from feedrate.loading.dataset import PairDataset
from feedrate.models.build import Built

Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]
Hits = NDArray[np.bool_]

SPLITS = {"validation": "eval", "test": "predict"}
"""The splits that are evaluated, and the prefix of their metrics."""
_ROWS = 1024
"""Number of queries ranked at once; it bounds the memory for their scores."""


def evaluate(trainer: Any, log: EventLog, split: str, dataset: PairDataset, built: Built) -> None:
    """Run the model over a split, on every rank; rank 0 writes `<split>_results.json` and an
    `evaluation` event."""
    prefix, ignored = SPLITS[split], list(built.other_outputs)
    output = trainer.predict(dataset, ignore_keys=ignored, metric_key_prefix=prefix)
    score = {"retrieval": retrieval, "accuracy": accuracy}[built.scores]
    scores = {f"{prefix}_{name}": value for name, value in score(output, dataset).items()}
    metrics = {**output.metrics, f"{prefix}_samples": len(dataset), **scores}
    trainer.log(dict(metrics))
    trainer.save_metrics(split, metrics)
    if log.rank == 0:
        log.write(Evaluation(rank=log.rank, split=split, metrics=metrics))


def retrieval(output: Any, dataset: PairDataset) -> dict[str, float]:
    """Recall of text and image embeddings, in both directions."""
    text, image = output.predictions
    groups = np.unique(np.array(dataset.images), return_inverse=True)[1]
    return {
        "image_to_text_recall_at_1": float((ranks(image, text, groups, groups) == 0).mean()),
        "text_to_image_recall_at_1": float((ranks(text, image, groups, groups) == 0).mean()),
    }


def accuracy(output: Any, dataset: PairDataset) -> dict[str, float]:
    """Share of hits among the rows whose class was trained on, and the share of such rows."""
    classes = dataset.input_ids[:, 0].numpy()
    hits = known_classes(output.predictions, classes)
    scores = {"accuracy": float(hits.mean())} if hits.size else {}
    return scores | {"known_classes_share": float((classes >= 0).mean())}


def ranks(queries: Floats, targets: Floats, of_query: Numbers, of_target: Numbers) -> Numbers:
    """The rank (n,) of each query's nearest right target: how many wrong ones are as near to it.

    `queries` (n, d) and `targets` (m, d) are normalised; a larger dot product is nearer.
    `of_query` (n,) and `of_target` (m,) number groups: the targets of a query's group are right, as
    any caption of an image matches it. A query without a right target has rank m.
    """
    found = np.empty(len(queries), dtype=np.int64)
    for start in range(0, len(queries), _ROWS):
        some = slice(start, start + _ROWS)
        scores = queries[some] @ targets.T
        right = of_query[some, None] == of_target[None, :]
        best = np.where(right, scores, -np.inf).max(axis=1, keepdims=True)
        # Not "at least": a score that is not a number compares as false, and counts against it.
        found[some] = (~right & ~(scores < best)).sum(axis=1)
    return found


def choice_hits(scores: Floats, labels: Numbers) -> Hits:
    """Whether a row of `scores` (n, choices) is largest at its label (n,) alone; NaN never is."""
    rows = np.arange(len(scores))
    below = scores < scores[rows, labels][:, None]
    below[rows, labels] = True
    return below.all(axis=1) & ~np.isnan(scores[rows, labels])


def known_classes(logits: Floats, classes: Numbers) -> Hits:
    """Whether the class (n,) of a row has the largest of its logits (n, classes), without rows
    whose class was not trained on (< 0)."""
    known = classes >= 0
    return choice_hits(logits[known], classes[known])
