"""The metered Trainer against a stopwatch, and what a training run must be able to do."""

import time
from types import SimpleNamespace

import pytest
import torch
from one_weight import OneWeight, Rows
from script_job import make_rank
from stopwatch import Stopwatch
from training_jobs import make_spec, named, read_events, train_here

from feedrate.config.errors import ConfigError
from feedrate.devices.base import Deferred, UnsupportedError, adapter
from feedrate.devices.kinds import cpu
from feedrate.jobs.blocks import EndlessBatches
from feedrate.jobs.events import EventLog
from feedrate.jobs.job_setup import check_rows
from feedrate.jobs.meter import Meter
from feedrate.jobs.trainer import make_trainer

pytestmark = pytest.mark.usefixtures("counted_once")

STEP_S = 0.02
BURST_S = 0.1
COPY_S = 0.005


class Sleeping(OneWeight):
    """A model whose step takes a known time."""

    def forward(self, x, return_loss=True):
        time.sleep(STEP_S)
        return super().forward(x)


class Bursty(Rows):
    """Rows of which every twentieth (the first of every fifth batch of 4) is slow."""

    batches = -1

    def __getitems__(self, indices):
        self.batches += 1
        if self.batches % 5 == 0:
            time.sleep(BURST_S)
        return super().__getitems__(indices)


def sleeping_trainer(folder, *, metered=True, **protocol):
    spec = make_spec(**protocol)
    device = adapter("cpu")
    meter = Meter(device, EventLog(folder, 0), spec.protocol.steps, spec.protocol.warmup_steps)
    return make_trainer(
        spec,
        device,
        folder / "trainer",
        meter if metered else None,
        SimpleNamespace(model=Sleeping(), layers=(), encoders=()),
        Bursty(),
    )


def test_what_workers_are_sent_stays_on_the_host(tiny_prepared, tmp_path):
    """A worker that is not forked gets a copy of the dataset, without tensors on a GPU."""
    _, _, trainer = make_rank(make_spec(), tiny_prepared, tmp_path)
    batch = {"pixel_values": torch.zeros(1, 3, 2, 2, dtype=torch.uint8, device="meta")}
    assert trainer.finish(batch)["pixel_values"].device.type == "meta"
    held = [value.device.type for value in vars(trainer.train_dataset.finish).values()]
    assert set(held) == {"cpu"}


def test_a_bursty_loader_is_measured_as_by_a_stopwatch(tmp_path):
    trainer, stopwatch = sleeping_trainer(tmp_path, steps=25, warmup_steps=5), Stopwatch()
    trainer.add_callback(stopwatch)
    trainer.train()
    (window,) = named(read_events(tmp_path / "events.jsonl"), "window")
    least_s, most_s = stopwatch.between(5, 25)
    assert window["samples"] == 20 * 4
    assert least_s <= window["wall_s"] <= most_s
    assert 4 * BURST_S <= window["data_wait_s"] <= window["wall_s"] - 20 * STEP_S


def test_slow_copies_are_told_apart_from_a_slow_loader(tmp_path, monkeypatch):
    from accelerate import data_loader

    def slow(batch, *args, **kwargs):
        time.sleep(COPY_S)
        return usual(batch, *args, **kwargs)

    usual = data_loader.send_to_device
    monkeypatch.setattr(data_loader, "send_to_device", slow)
    trainer = sleeping_trainer(tmp_path, steps=25, warmup_steps=5)
    trainer.train()
    (window,) = named(read_events(tmp_path / "events.jsonl"), "window")
    assert window["copy_wait_s"] >= 20 * COPY_S
    waited_s = window["data_wait_s"] + window["copy_wait_s"]
    assert window["data_wait_s"] >= 4 * BURST_S
    assert waited_s <= window["wall_s"] - 20 * STEP_S


def test_the_trainer_logs_and_counts_the_same_steps_with_and_without_meter(tmp_path):
    for name, metered in (("on", True), ("off", False)):
        folder = tmp_path / name
        folder.mkdir()
        trainer = sleeping_trainer(folder, metered=metered, steps=12, warmup_steps=2)
        trainer.train()
        assert trainer.state.global_step == 12
        assert [entry["step"] for entry in trainer.state.log_history] == [10, 12]
        steps = named(read_events(folder / "events.jsonl"), "step")
        assert len(steps) == (12 if metered else 0)


def test_losses_are_read_where_the_trainer_reads_its_own(tmp_path, monkeypatch):
    """A device on which reading waits is asked for no loss between two logs."""
    trainer, read = sleeping_trainer(tmp_path, steps=25, warmup_steps=3), []

    def value(loss):
        read.append(len(trainer.state.log_history))
        return float(loss)

    def defer(_device, loss):
        return Deferred(lambda: False, lambda: value(loss))

    monkeypatch.setattr(cpu.DeviceAdapter, "defer", defer)
    trainer.train()
    steps = named(read_events(tmp_path / "events.jsonl"), "step")
    assert [step["step"] for step in steps] == list(range(1, 26))
    assert all(step["loss"] is not None for step in steps)
    # At the window's start, at both logs, and at the window's end, before the last log.
    assert read == [0] * 3 + [1] * 7 + [2] * 10 + [2] * 5


@pytest.fixture
def job(tiny_prepared, tmp_path, monkeypatch):
    """Run one rank in this process, with one round after the window; its folder and events."""
    monkeypatch.setattr("feedrate.jobs.rounds.needs_more", lambda *_: False)

    def _run(name="run", **values):
        run = tmp_path / name
        return run, train_here(tiny_prepared, run, make_spec(**values))

    return _run


def test_accumulated_micro_steps_are_one_step(job):
    _, events = job(accumulation=2, steps=3, ceiling_s=0.05)
    assert [(e["step"], e["samples"]) for e in named(events, "step")] == [(1, 8), (2, 8), (3, 8)]
    (window,) = named(events, "window")
    assert (window["samples"], window["steps"]) == (16, 2)
    losses = [e["loss"] for e in named(events, "step")]
    assert named(events, "trainer")[0]["metrics"]["train_loss"] == pytest.approx(
        sum(losses) / 3, rel=1e-4
    )
    model = next(e for e in named(events, "ceiling") if e["kind"] == "model")
    assert model["samples"] % 8 == 0


def test_more_workers_than_the_rank_has_cores_are_refused_before_training(job):
    with pytest.raises(
        UnsupportedError, match=r"2 workers, but each rank has 1 core\(s\); ask for few"
    ):
        job(workers=2, oversubscribe=False)


def test_a_job_has_the_fp32_that_it_asked_for(job, monkeypatch):
    """As a GPU would: what the libraries turn on while the Trainer is made is off in training."""
    told = ["tf32"]
    monkeypatch.setattr("feedrate.devices.kinds.cpu.DeviceAdapter.fp32", lambda _: told[-1])
    monkeypatch.setattr(
        "feedrate.devices.kinds.cpu.DeviceAdapter.hold_fp32",
        lambda _, precision: told.append("ieee" if precision == "fp32" else precision),
    )
    run, events = job()
    assert named(events, "strategy")[0]["fp32"] == "ieee"
    # Nor does it evaluate, measure or keep what it was not asked for.
    assert named(events, "evaluation") + named(events, "ceiling") + named(events, "stages") == []
    assert named(events, "window")
    assert not list((run / "trainer").glob("checkpoint-*"))


def test_a_split_smaller_than_a_step_is_told(tiny_prepared):
    said = r"train\.batch_size: 13 on 2 rank\(s\) needs 26 training rows, the dataset tiny has 24"
    with pytest.raises(ConfigError, match=said):
        check_rows(make_spec(batch_size=13, count=2), tiny_prepared)
    check_rows(make_spec(batch_size=12, count=2), tiny_prepared)
    with pytest.raises(ConfigError, match=r"batch_size: 5 x 5 micro-steps on 1 rank\(s\) needs 25"):
        check_rows(make_spec(batch_size=5, accumulation=5), tiny_prepared)
    check_rows(make_spec(batch_size=4, accumulation=6), tiny_prepared)


def test_every_step_of_every_epoch_is_whole(job):
    """24 rows are 6 batches an epoch, which 4 micro-steps do not divide: 2 batches are left out."""
    _, events = job(accumulation=4, steps=3)
    assert [e["samples"] for e in named(events, "step")] == [16, 16, 16]


def test_a_ceiling_that_fails_loses_no_result(job, monkeypatch):
    from feedrate.jobs.rounds import Session

    def fail(*_args):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Session, "_model_alone", fail)
    _, events = job(ceiling_s=0.05)
    assert {e["kind"] for e in named(events, "ceiling")} == {"live", "loader"}
    (note,) = named(events, "note")
    assert (note["about"], note["out_of_memory"]) == ("ceiling model", True)
    assert named(events, "window")


def test_batches_without_end_take_every_row_once_before_any_twice():
    batches = iter(EndlessBatches(10, 3, seed=1))
    first = [next(batches) for _ in range(3)]
    assert len({row for batch in first for row in batch}) == 9
    second = [next(batches) for _ in range(3)]
    assert len({row for batch in second for row in batch}) == 9
    assert first != second


def test_training_again_is_the_same_training(job):
    first = [e["loss"] for e in named(job("one", workers=0, steps=3)[1], "step")]
    second = [e["loss"] for e in named(job("two", workers=2, steps=3)[1], "step")]
    assert first == pytest.approx(second, rel=1e-5)  # nor do workers change it
