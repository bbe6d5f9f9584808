"""Run by torchrun from test_combinations.py: two steps of each combination of settings, in turn.

`combinations.py <prepared> <out> <combinations>`: the last is a JSON file of objects with the
settings `model` and `train`. Each rank writes `answers.<rank>.json`: for each combination its
losses and their data types, the scale of the losses, a sum of the weights and the strategy; or the
error.
"""

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.distributed.tensor import DTensor
from training_jobs import make_spec
from transformers import TrainingArguments, set_seed

from feedrate.config.settings import ModelSettings, TrainSettings
from feedrate.devices.base import BF16_AUTOCAST
from feedrate.devices.kinds import cpu
from feedrate.devices.launch import rank_from_environment
from feedrate.jobs.events import EventLog
from feedrate.jobs.job_setup import make_dataset
from feedrate.jobs.meter import Meter
from feedrate.jobs.strategy import describe_strategy, shares_weights
from feedrate.jobs.train import cast_for_training
from feedrate.jobs.trainer import make_trainer
from feedrate.models.build import build

STEPS = 2


class LikeCuda(cpu.DeviceAdapter):
    """The CPU, with the arguments that a GPU gets."""

    def training_arguments(self, common: dict[str, Any], settings: Any, warmup_steps: int) -> Any:
        return TrainingArguments(
            **{**common, "dataloader_pin_memory": False, "report_to": []},
            use_cpu=True,
            bf16=settings.train.precision in BF16_AUTOCAST,
            ddp_backend="gloo",
            ddp_find_unused_parameters=False,
        )


class Losses:
    """What a trainer's losses were, and their data types."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.dtypes: set[str] = set()
        self.scales: list[float] = []

    def watch(self, trainer: Any) -> None:
        compute, scaler = trainer.compute_loss, trainer.accelerator.scaler

        def computed(*args: Any, **kwargs: Any) -> Any:
            loss = compute(*args, **kwargs)
            self.scales.append(scaler.get_scale() if scaler else 1.0)
            self.values.append(float(loss.detach()))
            self.dtypes.add(str(loss.dtype))
            return loss

        trainer.compute_loss = computed


def main(prepared: Path, out: Path, combinations: list[dict[str, Any]]) -> None:
    """Train two steps of each."""
    rank = rank_from_environment()[0]
    torch.set_num_threads(1)
    before, answers = dict(os.environ), []
    for number, settings in enumerate(combinations):
        os.environ.clear()
        os.environ.update(before)  # accelerate leaves its choices there
        started_s = time.monotonic()
        try:
            answers.append(train(prepared, out / str(number), **settings))
        except Exception as error:
            answers.append({"error": f"{error}", "traceback": traceback.format_exc()})
        print(settings, time.monotonic() - started_s)
    (out / f"answers.{rank}.json").write_text(json.dumps(answers))


def train(
    prepared: Path, out: Path, model: dict[str, Any], train: dict[str, Any]
) -> dict[str, Any]:
    """Two steps by one combination."""
    rank, world_size, local_rank, local_ranks = rank_from_environment()
    out.mkdir(parents=True, exist_ok=True)
    spec = make_spec(count=world_size, steps=STEPS, warmup_steps=1)
    settings = msgspec.structs.replace(
        spec.settings,
        model=ModelSettings(**model),
        train=TrainSettings(batch_size=2, learning_rate=1e-3, **train),
    )
    spec = msgspec.structs.replace(spec, settings=settings)
    set_seed(spec.seed)
    device = LikeCuda(local_rank, local_ranks)
    empty = rank > 0 and shares_weights(spec)
    built = build(settings.model, settings.loader, prepared, empty=empty)
    cast_for_training(built.model, spec, built.layers)
    trainer = make_trainer(
        spec,
        device,
        out,
        Meter(device, EventLog(out, rank), STEPS, 1),
        model=built.model,
        dataset=make_dataset(spec, prepared, built, "train"),
        layers=built.layers,
    )
    accelerator, losses = trainer.accelerator, Losses()
    if settings.train.precision == "fp16" and accelerator.scaler is None:
        accelerator.native_amp = True  # accelerate has fp16 on accelerators only, torch here too
        handler = accelerator.scaler_handler
        options = handler.to_kwargs() if handler else {}
        accelerator.scaler = torch.amp.GradScaler("cpu", **options)
    losses.watch(trainer)
    trainer.train()
    ran = describe_strategy(trainer.model_wrapped, spec, built.layers)
    return {
        **vars(losses),
        "dtypes": sorted(losses.dtypes),
        "weights": checksum(trainer.model),
        "broadcasts": getattr(trainer.model_wrapped, "broadcast_buffers", False),
        **ran,
    }


def checksum(model: torch.nn.Module) -> float:
    """The sum of all weights' and buffers' sizes; all ranks take part."""
    values = [*model.parameters(), *model.buffers()]
    whole = [value.full_tensor() if isinstance(value, DTensor) else value for value in values]
    return sum(float(value.detach().double().abs().sum()) for value in whole)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(Path(sys.argv[3]).read_text()))
