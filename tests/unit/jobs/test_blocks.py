"""The steps of a block: how many its clock leaves out, and how many it counts."""

from types import SimpleNamespace

import pytest
import torch
from meter_parts import Clock
from training_jobs import make_spec, named, read_events

from feedrate.devices.base import adapter
from feedrate.jobs import rounds
from feedrate.jobs.blocks import Part
from feedrate.jobs.events import EventLog
from feedrate.jobs.rounds import BLOCKS, Session


class Ranks:
    """The accelerator of one of two ranks; the other one has `other` wherever it is asked."""

    def __init__(self, other):
        self.other = other

    def gather(self, mine):
        return torch.cat([mine, torch.tensor([float(self.other)])])

    def wait_for_everyone(self):
        pass


@pytest.fixture
def session(tmp_path):
    """A session of one of two ranks, without a model; `stops`: its loader's workers are stopped."""

    def _make(other=0, *, stops=False, ceiling_s=1.0):
        spec = make_spec(count=2, ceiling_s=ceiling_s)
        path = SimpleNamespace(by_torch=stops, round_size=1)
        trainer = SimpleNamespace(accelerator=Ranks(other), path=path)
        log = EventLog(tmp_path, 0)
        return Session(spec, adapter("cpu"), log, trainer, SimpleNamespace())

    return _make


@pytest.mark.parametrize(
    ("kind", "stops", "before"),
    [
        ("live", False, 7),  # the other rank has seven batches ready: both take seven steps
        ("loader", False, 3),  # nothing is exchanged: each rank takes what it has ready
        ("live", True, 3),
    ],
)
def test_ranks_that_exchange_gradients_take_equally_many_steps(
    session, tmp_path, kind, stops, before
):
    steps, made = session(other=7, stops=stops), []
    part = Part(lambda: made.append(kind), lead=lambda: 3)
    steps._parts[kind], steps._steps[kind] = part, 2
    steps._block(kind, 0)
    (block,) = named(read_events(tmp_path / "events.jsonl"), "ceiling")
    assert len(made) == before + 2
    assert block["samples"] == 2 * make_spec().settings.train.batch_size


@pytest.mark.parametrize("kind", ["live", "loader"])
def test_batches_that_were_ready_do_not_make_blocks_longer(session, monkeypatch, kind):
    clock, ready = Clock(), [0.001] * 5
    monkeypatch.setattr(rounds, "perf_counter", clock)

    def step():
        clock.now_s += ready.pop() if ready else 1.0

    made = session(ceiling_s=4.0 * BLOCKS)  # four seconds a block
    made._start(kind, lambda: Part(step, lead=lambda: len(ready)))
    assert made._steps[kind] == 4
