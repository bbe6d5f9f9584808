"""Training in fp16: the loss is scaled, and a step whose gradients overflow is recorded.

accelerate refuses fp16 on a CPU, so the accelerator is changed here; autocast, scaler and optimizer
are torch's own.
"""

from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from one_weight import Rows
from torch import nn
from training_jobs import make_spec

from feedrate.devices.base import adapter
from feedrate.jobs.events import EventLog, read_run_events
from feedrate.jobs.meter import Meter
from feedrate.jobs.trainer import MeteredTrainer, make_trainer
from feedrate.results.measurement import measure

START = 2.0**20
"""A scale with which gradients overflow in fp16, whose largest number is 65,504."""
STEPS, WARMUP = 12, 2


class Half(nn.Module):
    """Multiplies in the precision of autocast."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1, 1)

    def forward(self, x, return_loss=True):
        answer = self.linear(x)
        self.seen = answer.dtype
        return {"loss": answer.float().mean()}


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Every Trainer scales its loss and has fp16 autocast."""
    usual = MeteredTrainer.create_accelerator_and_postprocess

    def create(trainer):
        usual(trainer)
        trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=START)
        trainer.accelerator.native_amp = True
        monkeypatch.setattr(trainer.accelerator.state, "_mixed_precision", "fp16")

    monkeypatch.setattr(MeteredTrainer, "create_accelerator_and_postprocess", create)


def trained(folder, optimizer):
    """The spec, the Trainer after its run, and the events."""
    spec = make_spec(steps=STEPS, warmup_steps=WARMUP, train={"optimizer": optimizer})
    meter = Meter(adapter("cpu"), EventLog(folder, 0), STEPS, WARMUP)
    built = SimpleNamespace(model=Half(), layers=(), encoders=())
    trainer = make_trainer(spec, adapter("cpu"), folder / "trainer", meter, built, Rows())
    trainer.train()
    return spec, trainer, read_run_events(folder)


@pytest.mark.parametrize("optimizer", ["adamw_torch_loop", "adamw_torch_fused"])
def test_steps_that_overflow_are_counted_as_steps_without_update(as_on_a_gpu, tmp_path, optimizer):
    """A fused optimizer skips by itself, which accelerate does not see."""
    spec, trainer, ranks = trained(tmp_path, optimizer)
    assert trainer.model.seen == torch.float16
    scales = [step.loss_scale for step in ranks[0].steps]
    falls = [after < before for before, after in pairwise([START, *scales])]
    assert len(falls) == STEPS
    assert 0 < sum(falls[WARMUP:]) < sum(falls) < STEPS - WARMUP
    (state, *_) = trainer.optimizer.state.values()
    assert int(state["step"]) == STEPS - sum(falls)
    assert measure(ranks, spec, [], None).skipped_updates == sum(falls[WARMUP:])


def test_without_a_scaled_loss_nothing_is_counted(tmp_path):
    spec, _, ranks = trained(tmp_path, "adamw_torch_loop")
    assert [step.loss_scale for step in ranks[0].steps] == [None] * STEPS
    assert measure(ranks, spec, [], None).skipped_updates is None
