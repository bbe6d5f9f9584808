"""The Trainer of one rank, as a job makes it: alone, or in a script that torchrun starts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from feedrate.config.spec import RunSpec
from feedrate.devices.base import Adapter, adapter
from feedrate.devices.launch import rank_from_environment
from feedrate.jobs.events import EventLog
from feedrate.jobs.meter import Meter
from feedrate.jobs.train import build_for_training
from feedrate.jobs.trainer import make_trainer
from feedrate.loading.dataset import PairDataset
from feedrate.models.build import Built


def make_rank(
    spec: RunSpec,
    prepared: Path,
    out: Path,
    *,
    device: Callable[[int, int], Adapter] | None = None,
    dropout: bool = True,
) -> tuple[EventLog, Built, Any]:
    """This rank's log in `out`, model and Trainer."""
    rank, _, local_rank, local_ranks = rank_from_environment()
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    log = EventLog(out, rank)
    here = device(local_rank, local_ranks) if device else adapter("cpu", local_rank, local_ranks)
    built = build_for_training(spec, here, prepared, rank)
    for module in built.model.modules():
        if isinstance(module, torch.nn.Dropout) and not dropout:
            module.p = 0.0
    trainer = make_trainer(
        spec,
        here,
        out / "trainer",
        Meter(here, log, spec.protocol.steps, spec.protocol.warmup_steps),
        built,
        PairDataset(prepared, "train", built, spec.settings.loader),
    )
    return log, built, trainer
