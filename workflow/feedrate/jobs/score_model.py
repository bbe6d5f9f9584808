"""Score a run's model twice: as it was built, and with the weights that training left.

On each split: the loss, and retrieval with the contest's choice of captions, or classes.
"""

import math
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet
import torch
from transformers import set_seed
from transformers.utils import logging

from feedrate.config.settings import LoaderSettings, ModelSettings
from feedrate.config.spec import RunSpec
from feedrate.data.manifest import SAMPLES
from feedrate.data.winoground import read_winoground
from feedrate.devices.base import Adapter, adapter
from feedrate.devices.placement import Placement
from feedrate.jobs.events import EventLog, Scores
from feedrate.jobs.job_setup import Options
from feedrate.jobs.scores import (
    Entry,
    Estimate,
    Floats,
    Numbers,
    chance_of_recall,
    choice_hits,
    entry,
    known_classes,
    mean_interval,
    ranks,
)
from feedrate.jobs.winoground import winoground_quality
from feedrate.loading.dataset import PairDataset, collate, tokenise
from feedrate.models.build import Built, build, heads_of
from feedrate.models.layers import cast

SPLITS = ("validation", "test")
RECALLS = (1, 5, 10)
BATCH = 16
"""Rows of a forward pass, whatever training used: a contrastive loss depends on it, and the losses
of all runs must compare."""
CHOICES = 5
"""Captions among which the contest has one chosen; chance is right in a fifth of the cases."""
_LETTERS = "ABCDE"
_SEED = 20
"""Of the order of a split's rows: rows of one image should not meet in a batch."""


def run_job(
    spec: RunSpec,
    prepared: Path,
    run: Path,  # noqa: ARG001
    log: EventLog,
    placement: Placement,  # noqa: ARG001
    options: Options,
) -> None:
    """Score the weights in `options.score`, and write the `scores` event."""
    assert options.score is not None
    answer = score_model(spec, prepared, options.score, options.winoground)
    log.write(Scores(rank=log.rank, **answer))


def score_model(
    spec: RunSpec, prepared: Path, weights: Path, winoground: Path | None
) -> dict[str, Any]:
    """`scores` before and after training, and the copy of `winoground` that they are on.

    `weights` is the folder of the trained model. Raises what building and forward passes raise.
    """
    logging.disable_progress_bar()  # the job prints between the workflow's own lines
    device = adapter(spec.kind)
    device.hold_fp32()
    trained = msgspec.structs.replace(
        spec.settings.model, checkpoint=str(weights.resolve()), revision=None
    )
    scores: list[Entry] = []
    for moment, model in (("before", spec.settings.model), ("after", trained)):
        found = _scores_of(spec, device, model, prepared, winoground)
        scores += [{"moment": moment, **score} for score in found]
    described = read_winoground(winoground).described if winoground else ""
    return {"scores": scores, "winoground": described}


def _scores_of(
    spec: RunSpec,
    device: Adapter,
    model: ModelSettings,
    prepared: Path,
    winoground: Path | None,
) -> list[Entry]:
    """The scores of one state of the model.

    Its random weights are those of the training job, which sets the same seed just before it
    builds. Winoground's matching head is that of the weights before training.
    """
    set_seed(spec.seed)
    built = build(model, spec.settings.loader, prepared)
    cast(built.model, spec.settings.train)
    built.model.to(device.device).eval()
    scores: list[Entry] = []
    for split in SPLITS:
        scores += Split(spec, device, built, open_split(spec, prepared, built, split)).scores()
    if winoground is None:
        return scores
    return scores + winoground_quality(
        winoground,
        built,
        spec.settings,
        device.device,
        autocast=lambda: device.autocast(spec.settings.train.precision),
    )


class Split:
    """One split, with the model that is scored on it."""

    def __init__(self, spec: RunSpec, device: Adapter, built: Built, data: PairDataset) -> None:
        """`built` holds the model to score, on `device`."""
        self._spec, self._device, self._built, self._data = spec, device, built, data
        self._size = min(BATCH, len(data))
        self._dtype = next(built.model.parameters()).dtype
        self._choices, self.labels = read_choices(data, built)

    def scores(self) -> list[Entry]:
        """All figures of the split."""
        began = time.perf_counter()
        rows, losses, outputs = self._pass()
        figures = [self._loss(losses)]
        if self._built.scores == "accuracy":
            figures.append(self._accuracy(rows, outputs["logits"]))
        else:
            images = self._images(rows)
            figures += self._recalls(images, outputs["text"], outputs["image"])
            figures.append(self._matching(rows, images, outputs.get("choices")))
        seconds = round(time.perf_counter() - began, 3)
        return [figure | {"on": self._data.split, "seconds": seconds} for figure in figures]

    def _pass(self) -> tuple[list[int], list[float], dict[str, Floats]]:
        """Pass all rows: their numbers, the losses of complete batches, and the outputs by name.

        `text` and `image` are normalised embeddings (rows, d), `choices` the scores (rows, CHOICES)
        of the contest's captions; a classifier has `logits` (rows, classes) instead.
        """
        passed: list[int] = []
        losses: list[float] = []
        found: dict[str, list[Floats]] = defaultdict(list)
        for rows in self._batches():
            batch = self._placed(collate([self._data[row] for row in rows]))
            outputs = self._forward(batch)
            passed += rows
            if len(rows) == self._size:
                losses.append(float(outputs["loss"]))
            if self._built.scores == "accuracy":
                found["logits"].append(_array(outputs["logits"]))
                continue
            image = _array(outputs["image_embeds"])
            found["text"].append(_array(outputs["text_embeds"]))
            found["image"].append(image)
            if self._choices is not None:
                offered = [self._offered(batch, rows, number) for number in range(CHOICES)]
                scores = np.stack([(text * image).sum(axis=1) for text in offered], axis=1)
                found["choices"].append(scores)
        return passed, losses, {name: np.concatenate(parts) for name, parts in found.items()}

    def _offered(self, batch: dict[str, Any], rows: list[int], number: int) -> Floats:
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
        """Mean over complete batches."""
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

    def _accuracy(self, rows: list[int], logits: Floats) -> Entry:
        classes = self._data.input_ids[rows, 0].numpy()
        hits = known_classes(logits, classes)
        if not hits.size:
            return entry("accuracy", None, 0, note="no row has a class that was trained on")
        found = mean_interval(hits, groups=self._images(rows)[classes >= 0])
        return entry("accuracy", found, len(hits), chance=1 / len(self._built.tokenizer.names))

    def _recalls(self, images: Numbers, text: Floats, image: Floats) -> list[Entry]:
        """Both directions. An image counts once, and finds any of its captions."""
        of_image, first = np.unique(images, return_index=True)
        found = {
            "image_to_text": (ranks(image[first], text, of_image, images), of_image, images),
            "text_to_image": (ranks(text, image[first], images, of_image), images, of_image),
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

    def _matching(self, rows: list[int], images: Numbers, choices: Floats | None) -> Entry:
        if choices is None:
            note = f"the rows do not each have {CHOICES} captions to choose from, and a label"
            return entry("matching_accuracy", None, 0, note=note)
        hits = choice_hits(choices, self.labels[rows])
        found = mean_interval(hits, groups=images)
        return entry("matching_accuracy", found, len(hits), chance=1 / CHOICES)

    def _images(self, rows: list[int]) -> Numbers:
        """The number of each row's image."""
        numbers: Numbers = np.unique(np.array(self._data.images), return_inverse=True)[1]
        return numbers[rows]


def open_split(spec: RunSpec, prepared: Path, built: Built, split: str) -> PairDataset:
    """A split, read in the same way for every run: pictures as in the published script, whatever
    the run's own loader did."""
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
) -> tuple[tuple[torch.Tensor, torch.Tensor] | None, Numbers]:
    """Token numbers and mask of the rows' captions to choose from, each (rows, CHOICES,
    max_tokens), and the number of the right one (rows,); None where not every row has them."""
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


def _array(tensor: torch.Tensor) -> Floats:
    """On the host, in fp32: rounded scores would tie."""
    array: Floats = tensor.float().cpu().numpy()
    return array
