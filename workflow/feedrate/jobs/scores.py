"""The scores of a model on a split: its loss, and either retrieval with the contest's choice of
captions or the accuracy of classes, each with an interval: Wilson's of a share, else a bootstrap.
"""

import math
import time
from collections import Counter, defaultdict
from itertools import product
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet
import torch
from accelerate.utils import send_to_device
from numpy.typing import ArrayLike, NDArray

from feedrate.config.spec import RunSpec
from feedrate.data.manifest import SAMPLES
from feedrate.devices.base import Adapter
from feedrate.jobs.evaluation import Floats, Numbers, choice_hits, known_classes, ranks
from feedrate.loading.dataset import PairDataset, collate, tokenise
from feedrate.models.build import Built, heads_of

RECALLS = (1, 5, 10)
BATCH = 16
"""Rows of a forward pass: a contrastive loss depends on them, and all runs must be comparable."""
CHOICES = 5
"""Captions that the contest lets a model choose from."""
RESAMPLES = 4_000
CONFIDENCE = 0.95
_LETTERS = "ABCDE"
_SEED = 20
"""Of the order of rows (those of one image should not share a batch), and of the bootstrap."""
_CHUNK = 2**22
"""Number of values drawn at once; it bounds the memory for resampling."""

Entry = dict[str, Any]
"""One figure of quality.json, as the reader in results/ expects it."""


class Estimate(NamedTuple):
    """A mean and its interval."""

    value: float
    low: float
    high: float


def mean_interval(values: ArrayLike, groups: ArrayLike | None = None) -> Estimate:
    """Mean of `values` (n,) with its percentile-bootstrap interval, always the same. Dependent
    values (captions of one image) share a number in `groups` (n,) and are drawn together. Raises
    ValueError if there are no values."""
    data = np.asarray(values, dtype=float)
    if not data.size:
        raise ValueError("no values to take a mean of")
    sums, counts = _by_group(data, groups)
    draw = np.random.default_rng(_SEED)
    rows = max(1, _CHUNK // sums.size)
    means = []
    for done in range(0, RESAMPLES, rows):
        drawn = draw.integers(sums.size, size=(min(rows, RESAMPLES - done), sums.size))
        means.append(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return Estimate(float(data.mean()), float(low), float(high))


def _by_group(data: NDArray[Any], groups: ArrayLike | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """The sum and the number of values in each group."""
    place = np.arange(data.size) if groups is None else np.unique(groups, return_inverse=True)[1]
    return np.bincount(place, weights=data), np.bincount(place)


def share_interval(hits: ArrayLike, groups: ArrayLike | None = None) -> Estimate:
    """Share of `hits` (n,) with Wilson's interval (1927), which has a width for any share. Hits
    that share a number in `groups` (n,) count as the number of independent hits with the same
    variance (Korn and Graubard 1998); if none or all are right, each group counts as one hit."""
    data = np.asarray(hits, dtype=float)
    sums, counts = _by_group(data, groups)
    share = float(data.mean())
    alone, grouped = share * (1 - share), float(((sums - share * counts) ** 2).sum()) / data.size
    n = data.size * alone / max(alone, grouped) if alone else sums.size
    weight = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) ** 2 / n
    middle, half = share + weight / 2, math.sqrt(weight * (alone + weight / 4))
    low, high = ((middle + side) / (1 + weight) for side in (-half, half))
    return Estimate(share, max(low, 0.0), min(high, 1.0))


def ends(values: ArrayLike | None, groups: ArrayLike | None) -> tuple[float | None, ...]:
    """Mean and interval, of flags as a share; None for a value that is not finite (a model that
    diverged has no score), and for the interval of one example or one group."""
    if values is None or not np.isfinite(values).all():
        return None, None, None
    interval = share_interval if np.asarray(values).dtype == bool else mean_interval
    found = interval(values, groups)
    alone = np.size(values) == 1 if groups is None else np.unique(groups).size == 1
    return (found.value, None, None) if alone else found


def entry(
    metric: str,
    values: ArrayLike | None,
    *,
    groups: ArrayLike | None = None,
    chance: float | None = None,
    note: str = "",
) -> Entry:
    """A metric's mean over `values` with its interval, the value that chance gives, and, until
    `paired` has compared them, the examples."""
    examples = None if values is None else np.asarray(values).tolist()
    (value, low, high), n = ends(values, groups), len(examples or ())
    note = "not a finite number" if n and value is None else note
    shown = {"metric": metric, "value": value, "low": low, "high": high, "n": n}
    return {**shown, "chance": chance, "note": note, "examples": (examples, groups)}


def paired(before: list[Entry], after: list[Entry]) -> list[Entry]:
    """All entries with their moment, and those after training with their gain: the mean difference
    between the same examples after and before, with its interval (a paired bootstrap)."""
    known = {_key(one): one.pop("examples")[0] for one in before}
    for one in after:
        (now, groups), then = one.pop("examples"), known.get(_key(one))
        change = None
        if now is not None and then is not None:
            change = [float(value) - float(first) for value, first in zip(now, then, strict=True)]
        one |= zip(("gain", "gain_low", "gain_high"), ends(change, groups), strict=True)
    moments = {"before": before, "after": after}
    return [{"moment": name, **one} for name, entries in moments.items() for one in entries]


def _key(one: Entry) -> tuple[str | None, ...]:
    return one["on"], one.get("head"), one["metric"]


def chance_of_recall(of_query: Numbers, of_target: Numbers, k: int) -> float:
    """Mean share of queries that find a right target among k drawn without replacement."""
    targets, size_of = len(of_target), Counter(of_target.tolist())
    right = np.array([size_of[group] for group in of_query.tolist()])
    missed = np.ones(len(of_query))
    for drawn in range(min(k, targets)):
        missed *= np.clip(targets - right - drawn, 0, None) / (targets - drawn)
    return float(1 - missed.mean())


class Split:
    """One split, with the model that is scored on it: that of `built`, on `device`."""

    def __init__(self, spec: RunSpec, device: Adapter, built: Built, data: PairDataset) -> None:
        self._spec, self._device, self._built, self._data = spec, device, built, data
        self._size = min(BATCH, len(data))
        self._dtype = next(built.model.parameters()).dtype
        self._choices, self.labels = read_choices(data, built)

    def scores(self) -> list[Entry]:
        """All figures of the split."""
        began = time.perf_counter()
        rows, losses, outputs = self._pass()
        images = np.unique(np.array(self._data.images), return_inverse=True)[1][rows]
        figures = [self._loss(losses)]
        if self._built.scores == "accuracy":
            figures.append(self._accuracy(rows, images, outputs["logits"]))
        else:
            figures += recalls(images, outputs["text"], outputs["image"])
            figures.append(self._matching(rows, images, outputs.get("choices")))
        seconds = round(time.perf_counter() - began, 3)
        return [figure | {"on": self._data.split, "seconds": seconds} for figure in figures]

    def _pass(self) -> tuple[list[int], list[float], dict[str, Floats]]:
        """Pass all rows: their numbers, the losses of complete batches, and the outputs by name.

        `text` and `image` are normalised embeddings (rows, d), `choices` the scores (rows, CHOICES)
        of the contest's captions; a classifier has `logits` (rows, classes) instead.
        """
        losses: list[float] = []
        found: dict[str, list[Floats]] = defaultdict(list)
        order = np.random.default_rng(_SEED).permutation(len(self._data)).tolist()
        for start in range(0, len(order), self._size):
            rows = order[start : start + self._size]
            batch = send_to_device(collate([self._data[row] for row in rows]), self._device.device)
            batch["pixel_values"] = batch["pixel_values"].to(self._dtype)
            outputs = self._forward(batch)
            if len(rows) == self._size:
                losses.append(float(outputs["loss"]))
            if self._built.scores == "accuracy":
                found["logits"].append(_array(outputs["logits"]))
                continue
            found["text"].append(_array(outputs["text_embeds"]))
            found["image"].append(_array(outputs["image_embeds"]))
            if self._choices:
                found["choices"].append(self._choose(batch, rows, found["image"][-1]))
        return order, losses, {name: np.concatenate(parts) for name, parts in found.items()}

    def _choose(self, batch: dict[str, Any], rows: list[int], image: Floats) -> Floats:
        """Scores (batch, CHOICES) of the captions that the rows offer."""
        scores = []
        for number in range(CHOICES):
            offered = {n: t[rows, number].to(self._device.device) for n, t in self._choices.items()}
            outputs = self._forward(batch | offered)
            scores.append((_array(outputs["text_embeds"]) * image).sum(axis=1))
        return np.stack(scores, axis=1)

    def _forward(self, batch: dict[str, Any]) -> Any:
        with torch.inference_mode(), self._device.autocast(self._spec.settings.train.precision):
            outputs = self._built.model(**batch)
        self._device.end_of_step()
        return outputs

    def _loss(self, losses: list[float]) -> Entry:
        """Mean over complete batches; one batch gives no interval."""
        contrastive = "contrastive" in heads_of(self._spec.settings.model.name)
        name, chance = ("contrastive_loss", math.log(self._size)) if contrastive else ("loss", None)
        found = entry(name, losses, chance=chance, note=f"batches of {self._size}")
        return found | {"n": len(losses) * self._size}

    def _accuracy(self, rows: list[int], images: Numbers, logits: Floats) -> Entry:
        classes = self._data.input_ids[rows, 0].numpy()
        hits = known_classes(logits, classes)
        if not hits.size:
            return entry("accuracy", None, note="no row has a class that was trained on")
        chance = 1 / len(self._built.tokenizer.names)
        return entry("accuracy", hits, groups=images[classes >= 0], chance=chance)

    def _matching(self, rows: list[int], images: Numbers, choices: Floats | None) -> Entry:
        if choices is None:
            note = f"the rows do not each have {CHOICES} captions to choose from, and a label"
            return entry("matching_accuracy", None, note=note)
        hits = choice_hits(choices, self.labels[rows])
        return entry("matching_accuracy", hits, groups=images, chance=1 / CHOICES)


def recalls(images: Numbers, text: Floats, image: Floats) -> list[Entry]:
    """Recall at each of RECALLS in both directions, from embeddings (rows, d) of the pairs. An
    image, by its number in `images` (rows,), counts once, and any of its captions is right."""
    of_image, first = np.unique(images, return_index=True)
    found = {
        "image_to_text": (ranks(image[first], text, of_image, images), of_image, images),
        "text_to_image": (ranks(text, image[first], images, of_image), images, of_image),
    }
    entries = []
    for (way, (place, queries, targets)), k in product(found.items(), RECALLS):
        chance = chance_of_recall(queries, targets, k)
        entries.append(entry(f"{way}_recall_at_{k}", place < k, groups=queries, chance=chance))
    return entries


def read_choices(data: PairDataset, built: Built) -> tuple[dict[str, torch.Tensor], Numbers]:
    """input_ids and attention_mask of the captions that each row offers, each (rows, CHOICES,
    max_tokens), and the number of the right one (rows,); empty if a row has no such choice."""
    path, columns = data.prepared / SAMPLES, ["caption_choices", "label"]
    none: Numbers = np.zeros(0, dtype=np.int64)
    if not set(columns) <= set(pyarrow.parquet.read_schema(path).names):
        return {}, none
    split = [("split", "=", data.split)]
    table = pyarrow.parquet.read_table(path, columns=columns, filters=split).to_pylist()
    labels = [row["label"] for row in table]
    offered = [row["caption_choices"] or [] for row in table]
    if any(len(texts) != CHOICES for texts in offered) or not set(labels) <= set(_LETTERS):
        return {}, none
    texts = [str(text) for row in offered for text in row]
    ids, mask = (
        tokens.view(len(table), CHOICES, -1)
        for tokens in tokenise(built.tokenizer, texts, data.loader.max_tokens)
    )
    right = np.array([_LETTERS.index(label) for label in labels])
    return {"input_ids": ids, "attention_mask": mask}, right


def _array(tensor: torch.Tensor) -> Floats:
    """On the host, in fp32: rounded scores would tie."""
    return tensor.float().cpu().numpy()
