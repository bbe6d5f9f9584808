"""A run's model scored twice: as it was built, and with the weights that training left."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet
import torch
from numpy.typing import NDArray
from transformers import set_seed
from transformers.utils import logging

from feedrate.config.settings import LoaderSettings, ModelSettings
from feedrate.config.spec import RunSpec
from feedrate.data.manifest import SAMPLES
from feedrate.data.winoground import read_winoground
from feedrate.devices.base import Adapter, adapter
from feedrate.jobs.scores import (
    Entry,
    Estimate,
    chance_of_recall,
    choice_hits,
    entry,
    known_classes,
    mean_interval,
    ranks,
)
from feedrate.jobs.winoground import heads_of, winoground_quality
from feedrate.loading.dataset import PairDataset, collate, tokenise
from feedrate.models.build import Built, build
from feedrate.models.layers import cast

# What a model scores on a split of its data: loss, retrieval, the contest's choice, or classes.

RECALLS = (1, 5, 10)
BATCH = 16
"""Rows passed at once, whatever training took: a contrastive loss depends on it, and so those of
all runs compare."""
CHOICES = 5
"""Captions among which the contest has one chosen; chance is right in a fifth of the cases."""
_LETTERS = "ABCDE"
_SEED = 20
"""Of the order in which a split is passed through: rows of one image are not to meet in a batch."""


@dataclass
class Passed:
    """What forward passes over a split gave, in the order of its rows `rows`."""

    rows: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    """Of whole batches."""
    text: list[NDArray[np.float32]] = field(default_factory=list)
    image: list[NDArray[np.float32]] = field(default_factory=list)
    """Embeddings (batch, d), normalised; of a classifier there are `logits` (batch, classes)."""
    logits: list[NDArray[np.float32]] = field(default_factory=list)
    choices: list[NDArray[np.float32]] = field(default_factory=list)
    """Scores (batch, CHOICES) of the contest's captions."""


class Split:
    """One split, with the model that is scored on it."""

    def __init__(self, spec: RunSpec, device: Adapter, built: Built, data: PairDataset) -> None:
        """`built` holds the model as it is to be scored, on `device`."""
        self._spec, self._device, self._built, self._data = spec, device, built, data
        self._size = min(BATCH, len(data))
        self._dtype = next(built.model.parameters()).dtype
        self._choices, self.labels = read_choices(data, built)

    def scores(self) -> list[Entry]:
        """All figures of the split."""
        began = time.perf_counter()
        passed = self._pass()
        figures = [self._loss(passed.losses)]
        if self._built.scores == "accuracy":
            figures += self._classes(passed)
        else:
            figures += self._recalls(passed) + self._matching(passed)
        seconds = round(time.perf_counter() - began, 3)
        return [figure | {"on": self._data.split, "seconds": seconds} for figure in figures]

    def _pass(self) -> Passed:
        passed = Passed()
        for rows in self._batches():
            batch = self._placed(collate([self._data[row] for row in rows]))
            outputs = self._forward(batch)
            passed.rows += rows
            if len(rows) == self._size:
                passed.losses.append(float(outputs["loss"]))
            if self._built.scores == "accuracy":
                passed.logits.append(_array(outputs["logits"]))
                continue
            image = _array(outputs["image_embeds"])
            passed.text.append(_array(outputs["text_embeds"]))
            passed.image.append(image)
            if self._choices is not None:
                offered = [self._offered(batch, rows, number) for number in range(CHOICES)]
                passed.choices.append(np.stack([(t * image).sum(axis=1) for t in offered], axis=1))
        return passed

    def _offered(self, batch: dict[str, Any], rows: list[int], number: int) -> NDArray[np.float32]:
        """Embeddings (batch, d) of the rows' captions with this number."""
        assert self._choices is not None
        ids, mask = (tokens[rows, number].to(self._device.device) for tokens in self._choices)
        outputs = self._forward(batch | {"input_ids": ids, "attention_mask": mask})
        return _array(outputs["text_embeds"])

    def _forward(self, batch: dict[str, Any]) -> Any:
        with torch.inference_mode(), self._device.autocast(self._spec.settings.train.precision):
            outputs = self._built.model(**batch)
        self._device.end_of_step()
        return outputs

    def _placed(self, batch: dict[str, Any]) -> dict[str, Any]:
        there = self._device.device
        moved = {k: v.to(there) if torch.is_tensor(v) else v for k, v in batch.items()}
        return moved | {"pixel_values": moved["pixel_values"].to(self._dtype)}

    def _batches(self) -> Iterator[list[int]]:
        order = np.random.default_rng(_SEED).permutation(len(self._data)).tolist()
        for start in range(0, len(order), self._size):
            yield order[start : start + self._size]

    def _loss(self, losses: list[float]) -> Entry:
        """Mean over whole batches."""
        contrastive = "contrastive" in heads_of(self._spec.settings.model.name)
        found = mean_interval(losses)
        if len(losses) == 1:
            found = Estimate(found.value, math.nan, math.nan)
        return entry(
            "contrastive_loss" if contrastive else "loss",
            found,
            len(losses) * self._size,
            chance=math.log(self._size) if contrastive else None,
            note=f"batches of {self._size}",
        )

    def _classes(self, passed: Passed) -> list[Entry]:
        classes = self._data.input_ids[passed.rows, 0].numpy()
        hits = known_classes(np.concatenate(passed.logits), classes)
        if not hits.size:
            return [entry("accuracy", None, 0, note="no row has a class that was trained on")]
        found = mean_interval(hits, groups=self._images(passed)[classes >= 0])
        return [entry("accuracy", found, len(hits), chance=1 / len(self._built.tokenizer.names))]

    def _recalls(self, passed: Passed) -> list[Entry]:
        """Both directions. An image counts once, and finds any of its captions."""
        text, image = np.concatenate(passed.text), np.concatenate(passed.image)
        of_text = self._images(passed)
        of_image, first = np.unique(of_text, return_index=True)
        found = {
            "image_to_text": (ranks(image[first], text, of_image, of_text), of_image, of_text),
            "text_to_image": (ranks(text, image[first], of_text, of_image), of_text, of_image),
        }
        return [
            entry(
                f"{way}_recall_at_{k}",
                mean_interval(place < k, groups=queries),
                len(place),
                chance=chance_of_recall(queries, targets, k),
            )
            for way, (place, queries, targets) in found.items()
            for k in RECALLS
        ]

    def _matching(self, passed: Passed) -> list[Entry]:
        if self._choices is None:
            note = f"the rows do not each have {CHOICES} captions to choose from, and a label"
            return [entry("matching_accuracy", None, 0, note=note)]
        hits = choice_hits(np.concatenate(passed.choices), self.labels[passed.rows])
        found = mean_interval(hits, groups=self._images(passed))
        return [entry("matching_accuracy", found, len(hits), chance=1 / CHOICES)]

    def _images(self, passed: Passed) -> NDArray[np.int64]:
        """The number of each row's image."""
        numbers: NDArray[np.int64] = np.unique(np.array(self._data.images), return_inverse=True)[1]
        return numbers[passed.rows]


def open_split(spec: RunSpec, prepared: Any, built: Built, split: str) -> PairDataset:
    """A split as every run's model is shown it: pictures as in the published script, whatever the
    run's own loader did."""
    settings = spec.settings.loader
    return PairDataset(
        prepared,
        split,
        built.tokenizer,
        max_tokens=settings.max_tokens,
        image_px=built.image_px,
        mean=built.mean,
        std=built.std,
        loader=LoaderSettings(max_tokens=settings.max_tokens, label=settings.label),
        column=built.column,
    )


def read_choices(
    data: PairDataset, built: Built
) -> tuple[tuple[torch.Tensor, torch.Tensor] | None, NDArray[np.int64]]:
    """Token numbers and mask of the rows' captions to choose from, each (rows, CHOICES,
    max_tokens), and which is right (rows,); None where not every row has them."""
    path = data.prepared / SAMPLES
    none = None, np.zeros(0, dtype=np.int64)
    columns = ["caption_choices", "label"]
    if not set(columns) <= set(pyarrow.parquet.read_schema(path).names):
        return none
    split = [("split", "=", data.split)]
    table = pyarrow.parquet.read_table(path, columns=columns, filters=split).to_pylist()
    labels = [row["label"] for row in table]
    offered = [row["caption_choices"] or [] for row in table]
    if any(len(texts) != CHOICES for texts in offered) or not set(labels) <= set(_LETTERS):
        return none
    texts = [str(text) for row in offered for text in row]
    tokens, mask = tokenise(built.tokenizer, texts, data.loader.max_tokens)
    shape = (len(table), CHOICES, -1)
    return (tokens.view(shape), mask.view(shape)), np.array([_LETTERS.index(x) for x in labels])


def _array(tensor: torch.Tensor) -> NDArray[np.float32]:
    """On the host, in fp32: rounded scores would tie."""
    array: NDArray[np.float32] = tensor.float().cpu().numpy()
    return array


SPLITS = ("validation", "test")


def score_model(
    spec: RunSpec, prepared: Path, weights: Path, winoground: Path | None
) -> dict[str, Any]:
    """`scores` before and after training, and which copy of `winoground` they are on.

    `weights` is the folder of the trained model. Raises what building and forward passes raise.
    """
    logging.disable_progress_bar()  # what the job prints stands among the workflow's own lines
    device = adapter(spec.kind)
    device.hold_fp32()
    trained = msgspec.structs.replace(
        spec.settings.model, checkpoint=str(weights.resolve()), revision=None
    )
    scores: list[Entry] = []
    for moment, model in (("before", spec.settings.model), ("after", trained)):
        found = _moment(spec, device, model, prepared, winoground)
        scores += [{"moment": moment, **score} for score in found]
    return {
        "scores": scores,
        "winoground": read_winoground(winoground).described if winoground else "",
    }


def _moment(
    spec: RunSpec,
    device: Adapter,
    model: ModelSettings,
    prepared: Path,
    winoground: Path | None,
) -> list[Entry]:
    """The figures of one state of the model, whose random weights are those of the training job:
    that sets the same seed just before it builds."""
    set_seed(spec.seed)
    built = build(model, spec.settings.loader, prepared)
    cast(built.model, spec.settings.train)
    built.model.to(device.device).eval()
    scores: list[Entry] = []
    for split in SPLITS:
        scores += Split(spec, device, built, open_split(spec, prepared, built, split)).scores()
    return scores + _winoground(spec, device, built, winoground)


def _winoground(spec: RunSpec, device: Adapter, built: Built, examples: Path | None) -> list[Entry]:
    """The benchmark's figures; the matching head is that of the weights before training."""
    if examples is None:
        return []
    found = winoground_quality(
        examples,
        built,
        spec.settings,
        device.device,
        autocast=lambda: device.autocast(spec.settings.train.precision),
    )
    return [{"on": "winoground", **score._asdict()} for score in found]
