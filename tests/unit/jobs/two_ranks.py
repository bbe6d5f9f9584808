"""Run by torchrun, or alone, from test_two_ranks.py: trains without dropout and tells the weights.

`two_ranks.py <prepared> <out> <accumulation>`. Each rank leaves `weights.<rank>.safetensors`, its
events, and `stopwatch.<rank>.json`: the least and the most time of the window, by a stopwatch.
"""

import json
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from stopwatch import Stopwatch
from training_jobs import make_spec
from transformers import set_seed

from feedrate.devices.base import adapter
from feedrate.devices.launch import rank_from_environment
from feedrate.jobs.events import EventLog
from feedrate.jobs.job_setup import make_dataset
from feedrate.jobs.meter import Meter
from feedrate.jobs.trainer import make_trainer
from feedrate.models.build import build

STEPS, WARMUP = 6, 2


class Sleeping(Stopwatch):
    """Sleeps in each step, longer on later ranks."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.sleep_s = 0.2 + 0.1 * rank

    def on_pre_optimizer_step(self, *args, **kwargs):
        time.sleep(self.sleep_s)
        super().on_pre_optimizer_step(*args, **kwargs)


def main(prepared: Path, out: Path, accumulation: int) -> None:
    """Train six steps."""
    rank, world_size, local_rank, local_ranks = rank_from_environment()
    torch.set_num_threads(1)
    spec = make_spec(accumulation=accumulation, count=world_size, steps=STEPS, warmup_steps=WARMUP)
    set_seed(spec.seed)
    device = adapter("cpu", local_rank, local_ranks)
    built = build(spec.settings.model, spec.settings.loader, prepared)
    for module in built.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    meter = Meter(device, EventLog(out, rank), STEPS, WARMUP)
    trainer = make_trainer(
        spec,
        device,
        out / "trainer",
        meter,
        model=built.model,
        dataset=make_dataset(spec, prepared, built, "train"),
    )
    stopwatch = Sleeping(rank)
    trainer.add_callback(stopwatch)
    trainer.train()
    (out / f"stopwatch.{rank}.json").write_text(json.dumps(stopwatch.between(WARMUP, STEPS)))
    state = {name: tensor.contiguous() for name, tensor in trainer.model.state_dict().items()}
    save_file(state, out / f"weights.{rank}.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
