"""Evaluation on validation and prediction on test: loss, and retrieval or accuracy."""

from typing import Any

import numpy as np

from feedrate.data.loading.pairs import PairDataset
from feedrate.models.build import Built
from feedrate.models.scores import known_classes, ranks
from feedrate.train.events import EventLog

PREFIXES = {"validation": "eval", "test": "predict"}
"""Split to the prefix of its metrics; the files are named after the split."""


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
        "image_to_text_recall_at_1": float((ranks(image, text, groups, groups) == 0).mean()),
        "text_to_image_recall_at_1": float((ranks(text, image, groups, groups) == 0).mean()),
    }


def accuracy(output: Any, dataset: PairDataset) -> dict[str, float]:
    """Share of rows whose class has the largest logit, of the rows whose class was trained on."""
    classes = dataset.input_ids[:, 0].numpy()
    known = classes >= 0
    if not known.any():
        return {"known_classes_share": 0.0}
    hits = known_classes(output.predictions, classes)
    return {"accuracy": float(hits.mean()), "known_classes_share": float(known.mean())}
