"""Scores of a model before and after training, on splits without training and on Winoground. A tie
with the right answer counts as wrong, and so does a score that is no number."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np
import pyarrow.parquet
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from feedrate.config.spec import RunSpec
from feedrate.data.manifest import SAMPLES
from feedrate.data.winoground import read_winoground
from feedrate.jobs.events import Evaluation, EventLog, Score
from feedrate.jobs.worker import Options
from feedrate.loading.dataset import PairDataset, Sample, collate, tokenise
from feedrate.loading.pixels import Finish, crop, decode
from feedrate.models.build import Built, heads_of

Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]
Hits = NDArray[np.bool_]
Tokens = tuple[torch.Tensor, torch.Tensor]  # for each row a text: ids and mask, (rows, max_tokens)
Answers = Callable[..., list[list[Floats]]]  # `read_answers` for one model

SPLITS = {"validation": "eval", "test": "predict"}  # evaluated splits: prefixes of their metrics
CHOICES = 5  # captions that the contest lets a model choose from
WINOGROUND_CHANCE = {"text_score": 1 / 4, "image_score": 1 / 4, "group_score": 1 / 6}
"""By chance: of the 24 orders of four numbers, 6, 6 and 4 are right."""
_LETTERS = "ABCDE"
_ROWS = 1024  # number of queries compared at once; it bounds the memory for their scores


def evaluate(
    trainer: Any,
    log: EventLog,
    spec: RunSpec,
    prepared: Path,
    built: Built,
    options: Options,
    moment: Literal["before", "after"],
) -> None:
    """Score the Trainer's model; rank 0 writes the `evaluation` event. Before training, nothing
    wraps the model, and only rank 0 calls this. Afterwards all ranks do, to keep step."""
    start_s = perf_counter()
    scores: list[Score] = []
    answers = partial(read_answers, trainer, list(built.other_outputs))
    loader = spec.settings.loader
    datasets = {name: PairDataset(prepared, name, built, loader, options.store) for name in SPLITS}
    winoground = Path(options.winoground) if options.winoground else None
    with evaluating(trainer.model, trainer.args.device if moment == "before" else None):
        for dataset in datasets.values():
            scores += scores_of_split(answers, dataset, built)
        if winoground and heads_of(spec.settings.model.name):
            pairs = WinogroundPairs(winoground, built, loader.max_tokens)
            (outputs,) = answers(pairs)
            text, image = (output.reshape(len(output) // 2, 2, -1) for output in outputs)
            cosines = np.einsum("ncd,nid->nci", text, image)
            for metric, hits in winoground_hits(cosines).items():
                chance = WINOGROUND_CHANCE[metric]
                scores.append(score("winoground", metric, hits, np.arange(len(hits)), chance))
        if moment == "after":
            for dataset in datasets.values():
                predict(trainer, built, dataset, scores)
    if log.rank == 0:
        copy = read_winoground(winoground).copy if winoground else ""
        time_s = round(perf_counter() - start_s, 3)
        log.write(Evaluation(rank=0, moment=moment, scores=scores, winoground=copy, seconds=time_s))


@contextmanager
def evaluating(model: Any, device: torch.device | None) -> Iterator[None]:
    """Put a model into evaluation, on a device if it is not on one of its kind, and back."""
    was_training, home = model.training, next(model.parameters()).device
    away = device is not None and device.type != home.type  # before it is sharded
    try:
        if away:
            model.to(device)
        model.eval()
        yield
    finally:
        model.train(was_training)
        if away:
            model.to(home)


def read_answers(
    trainer: Any, ignored: list[str], dataset: Dataset[Sample], texts: Sequence[Tokens] = ()
) -> list[list[Floats]]:
    """The outputs for all rows in order, with their own texts and then with each of `texts`: the
    normalised embeddings of texts and images, each (rows, d), or logits. In fp32, against ties."""
    parts: list[list[list[Floats]]] = [[] for _ in range(1 + len(texts))]
    size = trainer.args.per_device_eval_batch_size
    for number, batch in enumerate(DataLoader(dataset, size, collate_fn=collate)):
        rows = slice(number * size, (number + 1) * size)
        captions: list[dict[str, torch.Tensor]] = [{}]
        captions += [{"input_ids": ids[rows], "attention_mask": mask[rows]} for ids, mask in texts]
        for part, tokens in zip(parts, captions, strict=True):
            inputs = batch | tokens
            _, answer, _ = trainer.prediction_step(trainer.model, inputs, False, ignored)
            outputs = answer if isinstance(answer, tuple) else (answer,)
            part.append([output.float().cpu().numpy() for output in outputs])
    return [[np.concatenate(output) for output in zip(*part, strict=True)] for part in parts]


def predict(trainer: Any, built: Built, dataset: PairDataset, scores: list[Score]) -> None:
    """Write `<split>_results.json`: the Trainer's own evaluation of a split, and its scores."""
    prefix, ignored = SPLITS[dataset.split], list(built.other_outputs)
    metrics = trainer.predict(dataset, ignore_keys=ignored, metric_key_prefix=prefix).metrics
    metrics[f"{prefix}_samples"] = len(dataset)
    for score in scores:
        if score.on == dataset.split and score.of:
            metrics[f"{prefix}_{score.metric}"] = sum(score.right) / sum(score.of)
    trainer.log(dict(metrics))
    trainer.save_metrics(dataset.split, metrics)


def scores_of_split(answers: Answers, dataset: PairDataset, built: Built) -> Iterator[Score]:
    """The accuracy of a classifier; else recall in both directions, where an image counts once and
    any of its captions is right, and the choice among the contest's captions."""
    name, images = dataset.split, np.unique(np.array(dataset.images), return_inverse=True)[1]
    if built.scores == "accuracy":
        ((logits,),), classes = answers(dataset), dataset.input_ids[:, 0].numpy()
        trained = classes >= 0  # other classes were not trained on
        right = classes[trained, None] == np.arange(logits.shape[1])
        hits = choice_hits(logits[trained], right)
        yield score(name, "accuracy", hits, images[trained], 1 / len(built.tokenizer.names))
        return
    choices, labels = read_choices(dataset, built) or ([], None)
    (text, image), *choice_answers = answers(dataset, choices)
    of_image, first = np.unique(images, return_index=True)
    directions = {
        "image_to_text": (image[first], text, of_image, images),
        "text_to_image": (text, image[first], images, of_image),
    }
    for direction, (queries, targets, of_query, of_target) in directions.items():
        hits = nearest_hits(queries, targets, of_query, of_target)
        chance = float(np.mean([np.mean(of_target == group) for group in of_query]))
        yield score(name, f"{direction}_recall_at_1", hits, of_query, chance)
    if labels is not None:
        cosines = np.stack([(choice * image).sum(axis=1) for choice, _ in choice_answers], axis=1)
        hits = choice_hits(cosines, labels[:, None] == np.arange(CHOICES))
        yield score(name, "matching_accuracy", hits, images, 1 / CHOICES)


class WinogroundPairs(Dataset[Sample]):
    """Winoground's pairs, two rows an example, read as in the published script."""

    def __init__(self, examples: Path, built: Built, max_tokens: int) -> None:
        rows = read_winoground(examples).examples
        self._images = [examples.parent / image for row in rows for image in row.images]
        captions = [caption for row in rows for caption in row.captions]
        self._ids, self._mask = tokenise(built.tokenizer, captions, max_tokens)
        self._px, self._finish = built.image_px, Finish(built.mean, built.std)

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, row: int) -> Sample:
        pixels = crop(decode(self._images[row]), self._px)
        tokens = {"input_ids": self._ids[row], "attention_mask": self._mask[row]}
        return {"pixel_values": self._finish.pixels(pixels[None])[0], **tokens}


def winoground_hits(scores: Floats) -> dict[str, Hits]:
    """Which examples are right (Thrush et al. 2022, arXiv 2204.03162, section 3): by `text_score`
    if each image's own caption scores higher, by `image_score` if each caption's own image does, by
    `group_score` if both hold. `scores` is (n, 2 captions, 2 images)."""
    own = scores[:, (0, 1), (0, 1)]
    text: Hits = np.all(own > scores[:, (1, 0), (0, 1)], axis=1)
    image: Hits = np.all(own > scores[:, (0, 1), (1, 0)], axis=1)
    return {"text_score": text, "image_score": image, "group_score": text & image}


def score(on: str, metric: str, hits: Hits, groups: Numbers, chance: float) -> Score:
    """A score as counts of each group: hits of one image are not independent."""
    numbers = np.unique(groups, return_inverse=True)[1]
    right = np.bincount(numbers, weights=hits).astype(int).tolist()
    of = np.bincount(numbers).tolist()
    return Score(on=on, metric=metric, right=right, of=of, chance=chance)


def nearest_hits(queries: Floats, targets: Floats, of_query: Numbers, of_target: Numbers) -> Hits:
    """Whether the target nearest to each query is of its group. `queries` (n, d) and `targets`
    (m, d) are normalised; `of_query` (n,) and `of_target` (m,) number the groups."""
    parts = np.array_split(np.arange(len(queries)), len(queries) // _ROWS + 1)
    hits = [choice_hits(queries[p] @ targets.T, of_query[p, None] == of_target) for p in parts]
    return np.concatenate(hits)


def choice_hits(scores: Floats, right: Hits) -> Hits:
    """Whether the one largest of each row of `scores` (n, m) is at one of its `right` places."""
    best = np.where(right, scores, -np.inf).max(axis=1)
    hits: Hits = best > np.where(right, -np.inf, scores).max(axis=1)
    return hits


def read_choices(data: PairDataset, built: Built) -> tuple[list[Tokens], Numbers] | None:
    """Tokens and mask of the first, second, … caption of all rows, and the right one's number."""
    path, columns = data.prepared / SAMPLES, ["caption_choices", "label"]
    if not set(columns) <= set(pyarrow.parquet.read_schema(path).names):
        return None
    split = [("split", "=", data.split)]
    table = pyarrow.parquet.read_table(path, columns=columns, filters=split).to_pydict()
    labels, rows = table["label"], [texts or [] for texts in table["caption_choices"]]
    if any(len(texts) != CHOICES for texts in rows) or not set(labels) <= set(_LETTERS):
        return None
    choices = [[str(texts[number]) for texts in rows] for number in range(CHOICES)]
    tokens = [tokenise(built.tokenizer, texts, data.loader.max_tokens) for texts in choices]
    return tokens, np.array([_LETTERS.index(label) for label in labels])
