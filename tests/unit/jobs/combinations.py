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

import torch
from script_job import make_rank
from torch.distributed.tensor import DTensor
from training_jobs import make_spec
from transformers import TrainingArguments

from feedrate.devices.base import BF16_AUTOCAST
from feedrate.devices.kinds import cpu
from feedrate.devices.launch import rank_from_environment
from feedrate.jobs.strategy import describe_strategy


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
    (out / f"answers.{rank_from_environment()[0]}.json").write_text(json.dumps(answers))


def train(
    prepared: Path, out: Path, model: dict[str, Any], train: dict[str, Any]
) -> dict[str, Any]:
    """Two steps by one combination."""
    train = {"batch_size": 2, "learning_rate": 1e-3, **train}
    spec = make_spec(count=2, model=model, train=train, steps=2)
    _, built, trainer = make_rank(spec, prepared, out, device=LikeCuda)
    accelerator, losses = trainer.accelerator, Losses()
    if train["precision"] == "fp16" and accelerator.scaler is None:
        accelerator.native_amp = True  # accelerate has fp16 on accelerators only, torch here too
        handler = accelerator.scaler_handler
        options = handler.to_kwargs() if handler else {}
        accelerator.scaler = torch.amp.GradScaler("cpu", **options)
    losses.watch(trainer)
    trainer.train()
    return {
        **vars(losses),
        "dtypes": sorted(losses.dtypes),
        "weights": checksum(trainer.model),
        "broadcasts": getattr(trainer.model_wrapped, "broadcast_buffers", False),
        **describe_strategy(trainer.model_wrapped, spec, built.layers),
    }


def checksum(model: torch.nn.Module) -> float:
    """The sum of all weights' and buffers' sizes; all ranks take part."""
    values = [*model.parameters(), *model.buffers()]
    whole = [value.full_tensor() if isinstance(value, DTensor) else value for value in values]
    return sum(float(value.detach().double().abs().sum()) for value in whole)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(Path(sys.argv[3]).read_text()))
