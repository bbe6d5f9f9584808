"""What an evaluation in graphs leaves of them: attributes of the model, and answers kept alive."""

import json
import weakref
from types import SimpleNamespace
from typing import Any

import torch
from habana_frameworks.torch.hpu import wrap_in_hpu_graph

from feedrate.devices.kinds._habana import Corrections


class Library:
    """Evaluates in graphs, as GaudiTrainer does on one card."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(2, 2)
        self.args = SimpleNamespace(
            throughput_warmup_steps=1, use_compiled_autograd=False, output_dir="."
        )

    def predict(self) -> Any:
        """A reference to the answer, which does not keep it alive."""
        return weakref.ref(wrap_in_hpu_graph(self.model)(torch.ones(1, 2)))


class Trainer(Corrections, Library):
    """As a job's."""


trainer = Trainer()
before = set(vars(trainer.model))
answer = trainer.predict()
left = sorted(set(vars(trainer.model)) - before)
print(json.dumps({"attributes": left, "answer": answer() is not None}))
