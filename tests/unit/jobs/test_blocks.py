"""The steps of a block: how many its clock leaves out, and how many it counts."""

from itertools import cycle
from types import SimpleNamespace

import pytest
import torch
from meter_parts import Clock
from training_jobs import make_spec, named, read_events

from feedrate.devices.base import adapter
from feedrate.jobs import rounds
from feedrate.jobs.blocks import FEWEST_ROUNDS, Part
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
    part = Part(lambda: made.append(kind), untimed_steps=lambda: 3)
    part.steps, steps._parts[kind] = 2, part
    steps._block(kind, 0)
    (block,) = named(read_events(tmp_path / "events.jsonl"), "ceiling")
    assert len(made) == before + 2
    assert block["samples"] == 2 * make_spec().settings.train.batch_size


@pytest.fixture
def clock(monkeypatch):
    """The clock of the rounds."""
    clock = Clock()
    monkeypatch.setattr(rounds, "perf_counter", clock)
    return clock


@pytest.fixture
def part(clock):
    """Make a function that makes a part whose step takes a time."""

    def _part(step_s, step_multiple=1):
        def step():
            clock.now_s += step_s

        return lambda: Part(step, step_multiple=step_multiple)

    return _part


def test_long_bursts_of_a_loader_do_not_take_the_time_of_the_other_parts(
    session, tmp_path, monkeypatch, part
):
    measured = session(ceiling_s=2.0)
    parts = {"_live": part(0.2), "_loader_alone": part(0.04, 16), "_model_alone": part(0.15)}
    for name, make in {**parts, "_exchange_alone": part(0.01), "_stages": float}.items():
        monkeypatch.setattr(measured, name, make)
    measured.measure()
    walls_s = {}
    for block in named(read_events(tmp_path / "events.jsonl"), "ceiling"):
        walls_s.setdefault(block["kind"], []).append(block["wall_s"])
    assert {kind: len(walls) for kind, walls in walls_s.items()} == {
        "live": 7,
        "model": 7,
        "exchange": 7,
        "loader": 3,
    }
    assert walls_s["loader"] == pytest.approx([16 * 0.04] * 3)


@pytest.mark.parametrize(("loader_s", "ended"), [(0.08, True), (0.15, False)])
def test_a_loader_that_is_ample_is_measured_no_further(
    loader_s, ended, session, tmp_path, monkeypatch, clock, part
):
    """Training takes 0.2 s a step; the model's blocks differ, so that rounds go on."""
    model_s = cycle([0.1, 0.1, 0.2])

    def step():
        clock.now_s += next(model_s)

    measured = session(ceiling_s=2.0)
    parts = {
        "_live": part(0.2),
        "_loader_alone": part(loader_s),
        "_model_alone": lambda: Part(step),
    }
    for name, make in {**parts, "_exchange_alone": part(0.01), "_stages": float}.items():
        monkeypatch.setattr(measured, name, make)
    measured.measure()
    blocks = [e["kind"] for e in named(read_events(tmp_path / "events.jsonl"), "ceiling")]
    assert blocks.count("model") == blocks.count("live") > FEWEST_ROUNDS
    assert blocks.count("loader") == (FEWEST_ROUNDS if ended else blocks.count("live"))


def test_blocks_of_the_model_last_as_long_as_those_of_training(session, part):
    measured = session(ceiling_s=0.1)
    measured._start("live", part(0.2, 16))
    measured._start("model", part(0.1))
    assert [measured._parts[kind].steps for kind in ("live", "model")] == [16, 32]


@pytest.mark.parametrize("kind", ["live", "loader"])
def test_batches_that_were_ready_do_not_make_blocks_longer(session, clock, kind):
    ready = [0.001] * 5

    def step():
        clock.now_s += ready.pop() if ready else 1.0

    made = session(ceiling_s=4.0 * BLOCKS)  # four seconds a block
    made._start(kind, lambda: Part(step, untimed_steps=lambda: len(ready)))
    assert made._parts[kind].steps == 4
