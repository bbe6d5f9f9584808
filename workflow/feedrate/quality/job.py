"""A run's model scored twice: as it was built, and with the weights that training left."""

from pathlib import Path
from typing import Any

import msgspec
from transformers import set_seed
from transformers.utils import logging

from feedrate.config.settings import ModelSettings, RunSpec
from feedrate.data.winoground import read_winoground
from feedrate.devices.base import Adapter, adapter
from feedrate.models.build import Built, build
from feedrate.models.layers import cast
from feedrate.quality.score import Entry
from feedrate.quality.splits import Split, open_split
from feedrate.quality.winoground import winoground_quality

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
