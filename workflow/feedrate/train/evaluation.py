"""Evaluation on validation and prediction on test: loss, and retrieval or accuracy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from feedrate.data.loading.pairs import PairDataset
from feedrate.models.build import Built
from feedrate.train.events import EventLog

PREFIXES = {"validation": "eval", "test": "predict"}
"""Split to the prefix of its metrics; the files are named after the split."""

_ROWS = 1024
"""Queries scored at once, so that a large split needs no square of its size."""


def evaluate(trainer: Any, log: EventLog, split: str, dataset: PairDataset, built: Built) -> None:
    """Run the model over a split; write `<split>_results.json` and an `evaluation` event.

    Every rank takes part; rank 0 writes.
    """
    prefix = PREFIXES[split]
    ignored = list(built.other_outputs)
    output = trainer.predict(dataset, ignore_keys=ignored, metric_key_prefix=prefix)
    score = {"retrieval": retrieval, "accuracy": accuracy}[built.scores]
    scores = {f"{prefix}_{name}": value for name, value in score(output, dataset).items()}
    metrics = {**output.metrics, f"{prefix}_samples": len(dataset), **scores}
    trainer.log(dict(metrics))
    trainer.save_metrics(split, metrics)
    if log.rank == 0:
        log.write("evaluation", split=split, metrics=metrics)


def retrieval(output: Any, dataset: PairDataset) -> dict[str, float]:
    """Recall of text and image embeddings, in both directions."""
    text, image = output.predictions
    groups = np.unique(np.array(dataset.images), return_inverse=True)[1]
    return {
        "image_to_text_recall_at_1": recall_at_1(image, text, groups),
        "text_to_image_recall_at_1": recall_at_1(text, image, groups),
    }


def accuracy(output: Any, dataset: PairDataset) -> dict[str, float]:
    """Share of rows whose class has the largest logit, of the rows whose class was trained on."""
    classes = dataset.input_ids[:, 0].numpy()
    known = classes >= 0
    if not known.any():
        return {"known_classes_share": 0.0}
    right = output.predictions.argmax(axis=1)[known] == classes[known]
    return {"accuracy": float(right.mean()), "known_classes_share": float(known.mean())}


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
