"""The rounds after the window: their blocks, their order, and what they must leave alone."""

import gzip
import json
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from training_jobs import make_spec, named, train_here

from feedrate.core.paths import TRACE_NAME
from feedrate.devices.base import Memory
from feedrate.devices.kinds.cpu import DeviceAdapter
from feedrate.jobs import rounds
from feedrate.jobs.blocks import EndlessBatches, Pipeline, needs_more, write_trace
from feedrate.jobs.events import EventLog
from feedrate.jobs.rounds import Session
from feedrate.loading.path import LoadingPath

pytestmark = pytest.mark.usefixtures("counted_once")


def run_rank(prepared, run, **settings):
    """Run one rank of three steps in this process; its events."""
    spec = make_spec(**{"steps": 3, "ceiling_s": 0.03, "batch_size": 2, **settings})
    return train_here(prepared, run, spec)


@pytest.fixture
def job(tiny_prepared, tmp_path):
    def _run(name="run", **settings):
        return run_rank(tiny_prepared, tmp_path / name, **settings)

    return _run


@pytest.fixture(scope="module")
def events(tiny_prepared, tmp_path_factory):
    """The events of a job with one loader worker."""
    return run_rank(tiny_prepared, tmp_path_factory.mktemp("rounds") / "run", workers=1)


def test_each_round_has_a_block_of_each_kind_in_another_order(events):
    blocks = [(e["round"], e["kind"]) for e in named(events, "ceiling")]
    orders = [[kind for at, kind in blocks if at == number] for number in range(3)]
    assert [sorted(order) for order in orders] == [["live", "loader", "model"]] * 3
    assert len({order[0] for order in orders}) == 3
    assert blocks == sorted(blocks, key=lambda block: block[0])
    for kind in ("live", "loader", "model"):
        sizes = {e["samples"] for e in named(events, "ceiling") if e["kind"] == kind}
        assert len(sizes) == 1, "blocks of a kind have the same number of steps"
    order = [event["event"] for event in events]
    assert order.index("window") < order.index("computation") < order.index("ceiling")


def test_neither_weights_nor_scores_depend_on_the_measurement(job, monkeypatch):
    monkeypatch.setattr(rounds, "needs_more", lambda *_: False)
    seen = []
    for name, ceiling_s in (("measured", 0.03), ("bare", 0.0)):
        if name == "bare":
            monkeypatch.setattr("feedrate.jobs.train.Meter", lambda *_: None)
        events = job(name, evaluate=True, ceiling_s=ceiling_s)
        scores = [one["scores"] for one in named(events, "evaluation")]
        seen.append((scores, named(events, "computation")[0]["weights"]))
    assert seen[0] == seen[1]


def test_stages_of_a_step_are_named_and_take_time(events):
    (stages,) = named(events, "stages")
    assert stages["steps"] == 3, "as many as the window, which has few"
    assert set(stages["seconds"]) - {"hand_over"} == {
        *("open", "read", "decode", "resize", "tokenise", "collate"),
        *("copy", "forward", "backward", "optimizer"),
    }
    assert all(seconds > 0 for seconds in stages["seconds"].values())
    assert stages["not_split"] == []
    assert stages["spans"]["copy"]["count"] == stages["steps"], "one copy of each batch"
    for stage, told in stages["spans"].items():
        assert told["p95_s"] > 0, stage
        assert told["seconds"] == stages["seconds"][stage]


def test_a_hand_over_that_no_batch_tells_is_not_split(job, monkeypatch):
    monkeypatch.setattr(rounds, "needs_more", lambda *_: False)
    monkeypatch.setattr("feedrate.loading.stages.stamp", dict)
    events = job(workers=1)
    assert named(events, "stages")[0]["not_split"] == ["hand_over"]


def test_the_block_of_stages_has_enough_samples_for_percentiles(job, monkeypatch):
    monkeypatch.setattr(rounds, "needs_more", lambda *_: False)
    monkeypatch.setattr(rounds, "STAGE_SAMPLES", 20)
    events = job(steps=8, warmup_steps=0, batch_size=4)
    assert named(events, "stages")[0]["steps"] == 5


def test_stages_are_timed_after_a_first_step_and_memory_between_two_passes(job, monkeypatch):
    """In Gaudi's lazy mode waits between stages make other graphs, whose compilation is no stage.
    Without workers there is no hand-over to tell apart."""
    calls, waited, stage = [], [], Session._stage

    def recorded(self, name, *args, **kwargs):
        calls.append(name)
        waited.extend([name] if self._process.switch[0] else [])
        return stage(self, name, *args, **kwargs)

    def memory(_):
        calls.append("memory")
        return Memory(float(len(calls)), 1e9)  # which call it was

    monkeypatch.setattr(Session, "_stage", recorded)
    monkeypatch.setattr(DeviceAdapter, "memory", memory)
    monkeypatch.setattr(rounds, "needs_more", lambda *_: False)
    (stages,) = named(job(), "stages")
    assert stages["spans"]["forward"]["count"] == stages["steps"] < waited.count("forward")
    number = int(stages["forward_memory_gib"])
    assert calls[number - 2 : number + 1] == ["forward", "memory", "backward"]
    assert stages["not_split"] == []


@pytest.fixture(scope="module")
def traced(tiny_prepared, tmp_path_factory):
    """A run of three steps that is traced for two more: its events, and those of the trace."""
    run = tmp_path_factory.mktemp("traced") / "run"
    events = run_rank(tiny_prepared, run, workers=1, profile_steps=2)
    with gzip.open(run / TRACE_NAME, "rt") as stream:
        return events, json.load(stream)["traceEvents"]


def test_a_trace_shows_steps_stages_and_operations(traced):
    shown = [event for event in traced[1] if event.get("ph") == "X"]
    spans = {}
    for event in shown:
        spans.setdefault(event["name"], []).append((event["ts"], event["ts"] + event["dur"]))
    steps = [spans[f"ProfilerStep#{number}"] for number in (1, 2)]
    assert [len(step) for step in steps] == [1, 1]
    for stage in ("copy", "forward", "backward", "optimizer"):
        for ((start, end),) in steps:
            inside = [span for span in spans[stage] if start <= span[0] <= span[1] <= end]
            assert inside, f"every step has the stage {stage}"
    assert {"aten::addmm", "aten::layer_norm"} <= set(spans)
    assert any(name.startswith("autograd::engine") for name in spans)


def test_a_trace_comes_after_all_that_is_measured(traced):
    events, shown = traced
    order = [event["event"] for event in events]
    (note,) = named(events, "note")
    assert (note["about"], note["message"]) == ("trace", TRACE_NAME)
    after = order[order.index("note") + 1 :]
    assert not {"step", "window", "ceiling", "stages"} & set(after)
    updates = [e for e in shown if e["name"] == "Optimizer.step#AdamW.step"]
    assert len(updates) == 2, "no step of the window, or of a block, is in the trace"


def test_a_trace_that_is_cut_short_leaves_no_file(tmp_path, monkeypatch):
    def fill(_, path):
        Path(path).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", fill)
    device = SimpleNamespace(profiled_as="CPU", synchronize=lambda: None)
    with pytest.raises(OSError, match="No space"):
        write_trace(device, EventLog(tmp_path, 0), tmp_path, lambda: torch.ones(2) + 1, 1)
    assert not list(tmp_path.glob(f"*{TRACE_NAME}*"))


class Counted(LoadingPath):
    """A path whose one worker makes batches without end and counts them in shared memory."""

    decode, round_size = "host", 1

    def __init__(self):
        self.made = torch.zeros(1, dtype=torch.int64).share_memory_()
        self.ahead = 1000

    def wrap(self, loader, done=None):
        raise NotImplementedError

    def batches(self, dataset, order):
        made = self.made

        class Rows(torch.utils.data.Dataset):
            def __getitems__(self, numbers):
                until_s = time.process_time() + 0.01
                while time.process_time() < until_s:
                    pass
                made.add_(1)
                return numbers

        yield from torch.utils.data.DataLoader(
            Rows(), batch_sampler=order, num_workers=1, prefetch_factor=self.ahead, collate_fn=list
        )


def test_a_loader_makes_no_batch_while_other_blocks_run():
    path = Counted()
    pipeline = Pipeline(path, None, EndlessBatches(8, 2, seed=1))

    def more_within(seconds):
        before = int(path.made)
        time.sleep(seconds)
        return int(path.made) - before

    try:
        time.sleep(0.05)  # the signal has arrived
        assert more_within(0.2) == 0
        with pipeline.running():
            next(pipeline)
            before = int(path.made)
            while int(path.made) == before:  # a batch that nobody has asked for yet
                assert all(worker.is_alive() for worker in pipeline._workers)
        time.sleep(0.05)
        assert more_within(0.2) == 0
    finally:
        pipeline.close()
    assert not any(worker.is_alive() for worker in pipeline._workers)


def test_workers_are_ahead_before_training_that_does_not_wait_for_them():
    path = Counted()
    path.ahead = 20
    pipeline = Pipeline(path, None, EndlessBatches(8, 2, seed=1))
    try:
        pipeline.fill()
        assert int(path.made) > 20
    finally:
        pipeline.close()


EVEN, UNEVEN = [1.0, 1.01, 0.99], [1.0, 1.5, 0.8]


@pytest.mark.parametrize(
    ("walls_s", "budget_s", "more"),
    [
        ({"live": [1.0, 1.0], "model": [0.5, 0.5]}, 1.0, True),  # fewer than three rounds
        ({"live": EVEN, "model": EVEN}, 100.0, False),  # the same drift cancels
        ({"live": UNEVEN, "model": UNEVEN}, 100.0, False),
        ({"live": EVEN, "model": UNEVEN}, 100.0, True),
        ({"live": EVEN, "model": UNEVEN}, 4.0, False),  # another round would cost too much
        ({"live": EVEN, "model": EVEN, "loader": UNEVEN}, 100.0, True),
        ({"model": UNEVEN}, 100.0, False),  # live has failed: nothing to compare with
        ({}, 100.0, False),
    ],
)
def test_rounds_go_on_until_rates_are_precise_or_the_time_is_spent(walls_s, budget_s, more):
    by_round = {kind: dict(enumerate(walls)) for kind, walls in walls_s.items()}
    assert needs_more(by_round, budget_s) is more


@pytest.mark.parametrize(("waited", "whole"), [(0.0, 2), (1.1, 1)])
def test_blocks_of_training_are_whole_bursts_of_batches_if_it_waits_for_its_workers(
    waited, whole, job, monkeypatch
):
    monkeypatch.setattr(rounds, "WAIT_SHARE", waited)
    monkeypatch.setattr(rounds, "needs_more", lambda *_: False)
    events = job(workers=2)
    steps = {e["kind"]: e["samples"] / 2 for e in named(events, "ceiling")}
    assert steps["live"] == whole
    assert steps["loader"] % 2 == 0


def cut_off(kind, monkeypatch):
    """The rounds of one of two ranks, on which a live block fails."""

    class Failing(Session):
        def __init__(self, *_):
            accelerator = SimpleNamespace(wait_for_everyone=lambda: None)
            self._trainer = SimpleNamespace(accelerator=accelerator)
            self._log = SimpleNamespace(rank=1, write=lambda note: None)
            self._ranks, self._failed, self.pipelines = 2, set(), []

        def measure(self):
            self._attempt("live", lambda: 1 / 0)

    monkeypatch.setattr(rounds, "Session", Failing)
    trainer = SimpleNamespace(meter=SimpleNamespace(window=None))
    rounds.measure_ceilings(None, SimpleNamespace(kind=kind), None, trainer, None)
    return "ended"


def test_a_rank_that_cannot_keep_step_ends_the_job_where_others_would_wait(monkeypatch):
    """gloo tells the others that it is gone; NCCL would hold them until its time limit."""
    assert cut_off("cpu", monkeypatch) == "ended"
    for kind in ("cuda", "hpu"):
        with pytest.raises(rounds.CutOffError, match=r"^ceiling live: division by zero$"):
            cut_off(kind, monkeypatch)


class Threaded:
    """A path whose thread makes up to `depth` batches ahead, as those of loader libraries do."""

    by_torch, round_size = False, 2

    def __init__(self, depth):
        self.depth = depth

    def batches(self, dataset, order):
        rows, ready = iter(order), deque()
        while True:
            while len(ready) <= self.depth:
                ready.append(next(rows))
            yield ready.popleft()


@pytest.mark.parametrize("depth", [0, 1, 7])
def test_batches_that_threads_made_before_a_block_are_known(depth, monkeypatch):
    monkeypatch.setattr("feedrate.jobs.blocks.SETTLED_S", 0.001)
    pipeline = Pipeline(Threaded(depth), None, EndlessBatches(40, 4, seed=1))
    assert pipeline.steps_ahead(1) == depth
    with pipeline.running():
        for _ in range(5):
            next(pipeline)
    assert pipeline.steps_ahead(1) == depth
    assert pipeline.steps_ahead(3) == -(-depth // 3)
    stopped = Threaded(depth)
    stopped.by_torch = True
    assert Pipeline(stopped, None, EndlessBatches(40, 4, seed=1)).steps_ahead(1) == 0
