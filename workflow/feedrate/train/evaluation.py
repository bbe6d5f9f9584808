"""Evaluation on validation and prediction on test: loss and retrieval in both directions."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from feedrate.data.loading.pairs import PairDataset
from feedrate.train.events import EventLog

PREFIXES = {"validation": "eval", "test": "predict"}
"""Split to the prefix of its metrics; the files are named after the split."""

_ROWS = 1024
"""Queries scored at once, so that a large split needs no square of its size."""


def evaluate(
    trainer: Any, log: EventLog, split: str, dataset: PairDataset, other_outputs: tuple[str, ...]
) -> None:
    """Run the model over a split; write `<split>_results.json` and an `evaluation` event.

    Every rank takes part; rank 0 writes.
    """
    prefix = PREFIXES[split]
    output = trainer.predict(dataset, ignore_keys=list(other_outputs), metric_key_prefix=prefix)
    text, image = output.predictions
    pairs = np.unique(np.array(dataset.images), return_inverse=True)[1]
    metrics = {
        **output.metrics,
        f"{prefix}_samples": len(dataset),
        f"{prefix}_image_to_text_recall_at_1": recall_at_1(image, text, pairs),
        f"{prefix}_text_to_image_recall_at_1": recall_at_1(text, image, pairs),
    }
    trainer.log(dict(metrics))
    trainer.save_metrics(split, metrics)
    if log.rank == 0:
        log.write("evaluation", split=split, metrics=metrics)


def recall_at_1(
    queries: NDArray[np.float32], targets: NDArray[np.float32], groups: NDArray[np.int64]
) -> float:
    """Share of queries whose nearest target (largest dot product) is of the query's group.

    `queries` and `targets` are (n, d) and normalised; `groups` (n,) tells which rows show the same
    image, so that any caption of an image counts as its match.
    """
    hits = 0
    for start in range(0, len(queries), _ROWS):
        nearest = (queries[start : start + _ROWS] @ targets.T).argmax(axis=1)
        hits += int((groups[nearest] == groups[start : start + _ROWS]).sum())
    return hits / len(queries)
