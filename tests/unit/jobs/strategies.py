"""Run by torchrun from test_strategies.py: trains a tiny FLAVA by strategies, and saves it.

`strategies.py <prepared> <runs>`: the last is JSON, a list of objects with a folder `out`, settings
of `model` and `train`, and a `protocol`. The runs are made in turn. Each goes on from a checkpoint
in its folder. Each rank leaves its events; rank 0 leaves the weights, in the folder `model`.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import torch
from training_jobs import make_spec
from transformers import set_seed

from feedrate.config.settings import ModelSettings, TrainSettings
from feedrate.devices.base import adapter
from feedrate.devices.launch import rank_from_environment
from feedrate.jobs.events import EventLog, Strategy
from feedrate.jobs.job_setup import make_dataset
from feedrate.jobs.meter import Meter
from feedrate.jobs.strategy import describe_strategy
from feedrate.jobs.trainer import make_trainer
from feedrate.models.build import build

Part = dict[str, Any]


def main(prepared: Path, runs: list[Part]) -> None:
    """Make all runs."""
    torch.set_num_threads(1)
    before = dict(os.environ)
    for run in runs:
        os.environ.clear()
        os.environ.update(before)  # accelerate leaves its choices there
        make_run(prepared, Path(run["out"]), run["model"], run["train"], run["protocol"])


def make_run(prepared: Path, out: Path, model: Part, train: Part, protocol: Part) -> None:
    """Train four steps, or as `protocol` says, without dropout."""
    rank, world_size, local_rank, local_ranks = rank_from_environment()
    torch.manual_seed(0)
    spec = make_spec(count=world_size, **protocol)
    settings = msgspec.structs.replace(
        spec.settings,
        model=ModelSettings(name="flava", size="tiny", **model),
        train=TrainSettings(batch_size=2, precision="fp32", learning_rate=1e-3, **train),
    )
    spec = msgspec.structs.replace(spec, settings=settings)
    set_seed(spec.seed)
    device = adapter("cpu", local_rank, local_ranks)
    built = build(settings.model, settings.loader, prepared)
    for module in built.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    log = EventLog(out, rank)
    trainer = make_trainer(
        spec,
        device,
        out / "trainer",
        Meter(device, log, spec.protocol.steps, 1),
        model=built.model,
        dataset=make_dataset(spec, prepared, built, "train"),
        layers=built.layers,
        encoders=built.encoders,
    )
    trainer.train()
    ran = describe_strategy(trainer.model_wrapped, spec, built.layers)
    log.write(Strategy(rank=rank, **ran))
    encoders = describe_strategy(trainer.model_wrapped, spec, built.encoders)
    (out / "sharded_encoders").write_text(str(encoders["sharded_layers"]))
    trainer.save_model(str(out / "model"))
    if rank == 0:
        built.tokenizer.save_pretrained(out / "model")


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
