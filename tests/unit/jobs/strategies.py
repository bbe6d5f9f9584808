"""Run by torchrun from test_strategies.py: trains a tiny FLAVA by strategies, and saves it.

`strategies.py <prepared> <runs>`: the last is JSON, a list of objects with a folder `out`, settings
of `model` and `train`, and a `protocol`. The runs are made in turn, without
dropout. Each rank leaves its events; rank 0 leaves the weights, in the folders `start` (before the
first step) and `model`.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from script_job import make_rank
from training_jobs import make_spec
from transformers import TrainerCallback

from feedrate.jobs.events import Strategy
from feedrate.jobs.strategy import describe_strategy

Part = dict[str, Any]


class SavesTheStart(TrainerCallback):
    """Saves the whole weights when the model is shared among the ranks, before the first step."""

    def __init__(self, trainer: Any, folder: Path) -> None:
        self.trainer, self.folder = trainer, folder

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.trainer.save_model(str(self.folder))


def main(prepared: Path, runs: list[Part]) -> None:
    """Make all runs."""
    before = dict(os.environ)
    for run in runs:
        os.environ.clear()
        os.environ.update(before)  # accelerate leaves its choices there
        make_run(prepared, Path(run["out"]), run["model"], run["train"], run["protocol"])


def make_run(prepared: Path, out: Path, model: Part, train: Part, protocol: Part) -> None:
    """Train by one strategy."""
    train = {"batch_size": 2, "learning_rate": 1e-3, **train}
    spec = make_spec(count=2, model={"name": "flava", **model}, train=train, **protocol)
    log, built, trainer = make_rank(spec, prepared, out, dropout=False)
    trainer.add_callback(SavesTheStart(trainer, out / "start"))
    trainer.train()
    facts = describe_strategy(trainer.model_wrapped, spec, built.layers)
    log.write(Strategy(rank=log.rank, **facts))
    encoders = describe_strategy(trainer.model_wrapped, spec, built.encoders)
    (out / "sharded_encoders").write_text(str(encoders["sharded_layers"]))
    trainer.save_model(str(out / "model"))
    if log.rank == 0:
        built.tokenizer.save_pretrained(out / "model")


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
