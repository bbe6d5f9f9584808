"""Time by stage in shared memory, and the delays of a virtual speed-up by a clock of the test."""

import multiprocessing
import threading
import time
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest

from feedrate.loading import stages
from feedrate.loading.stages import STAGES, Process, Recorder, Span


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """No test leaves its recorder in this process: batches would bear its stamp."""
    monkeypatch.setattr(stages, "_here", None)


DECODE, FORWARD = STAGES.index("decode"), STAGES.index("forward")


class Clock:
    """Time that passes only where somebody works or pauses."""

    def __init__(self, overshoot_s=0.0):
        self.now_s, self.paused_s, self.overshoot_s = 0.0, 0.0, overshoot_s

    def __call__(self):
        return self.now_s

    def pause(self, seconds):
        self.now_s += seconds + self.overshoot_s
        self.paused_s += seconds


def rank(processes=2, *, stage="decode", share=0.5, overshoot_s=0.0):
    """The processes of a rank, each with a clock of its own."""
    log, counts = np.zeros((processes, stages.SPANS, 4)), np.zeros(processes)
    caused_s = np.zeros(processes)
    switch = np.array([1.0, STAGES.index(stage), share, 0.0])
    clocks = [Clock(overshoot_s) for _ in range(processes)]
    made = [
        Process(log[number], counts[number:], caused_s, switch, number)
        for number in range(processes)
    ]
    for process, clock in zip(made, clocks, strict=True):
        process.clock, process.pause = clock, clock.pause
    return made, clocks


def work(process, clock, stage, seconds):
    with Span(process, stage, 1):
        clock.now_s += seconds


def test_a_faster_stage_delays_all_others_by_its_share():
    (trainer, worker), (at_trainer, at_worker) = rank()
    work(worker, at_worker, "decode", 2.0)
    assert (at_worker.paused_s, worker.had_s) == (0.0, 1.0)
    work(trainer, at_trainer, "forward", 3.0)
    assert (at_trainer.paused_s, trainer.had_s) == (1.0, 1.0)
    # Relative to the worker, decoding took 2 s, and the others paused for 1 s of them.
    assert at_trainer.now_s - trainer.had_s == 3.0
    assert at_worker.now_s - worker.had_s == 1.0


def test_other_stages_delay_nobody():
    (trainer, worker), (_, at_worker) = rank(stage="resize")
    work(worker, at_worker, "decode", 2.0)
    trainer.settle()
    assert trainer.had_s == 0.0


def test_two_that_decode_at_the_same_time_delay_each_other():
    """Both decode for 2 s at twice the speed: after 2 + 1 s, 2 s of delays have been had."""
    workers, clocks = rank()
    for worker, clock in zip(workers, clocks, strict=True):
        with Span(worker, "decode", 1):
            clock.now_s += 2.0
    for worker, clock in zip(workers, clocks, strict=True):
        worker.settle()
        assert clock.now_s == 3.0
        assert clock.now_s - worker.had_s == 1.0


def test_who_waits_for_others_is_delayed_through_them():
    (trainer, worker), (at_trainer, at_worker) = rank()
    work(worker, at_worker, "decode", 1.0)
    trainer.settle()  # 0.5 s are owed from before; 2 s come while it waits
    work(worker, at_worker, "decode", 4.0)
    trainer.wake()
    trainer.settle()
    assert at_trainer.paused_s == 0.5
    assert trainer.had_s == 2.5


def test_a_worker_that_was_idle_owes_nothing():
    (trainer, worker), (at_trainer, at_worker) = rank(stage="forward")
    work(trainer, at_trainer, "forward", 4.0)
    worker.wake()
    worker.settle()
    assert at_worker.paused_s == 0.0


def test_a_pause_that_was_too_long_counts_for_the_next():
    (trainer, worker), (at_trainer, at_worker) = rank(overshoot_s=0.25)
    work(worker, at_worker, "decode", 1.0)
    trainer.settle()
    assert trainer.had_s == 0.75
    work(worker, at_worker, "decode", 1.0)
    trainer.settle()
    assert at_trainer.paused_s == pytest.approx(0.5 + 0.25)


def test_seconds_are_by_step_for_the_trainer_and_by_sample_for_workers():
    recorder = Recorder(2)
    processes = [recorder.attach(number) for number in range(3)]
    with recorder.recording():
        for worker in processes[1:]:
            worker.add("decode", 0.2)
            worker.add("decode", 0.4)
            worker.add("resize", 0.1, 0)  # the second part of what a decoder has counted
            worker.add("resize", 0.3)
        processes[0].add("forward", 1.0)
        processes[0].add("forward", 3.0)
        # Workers ran ahead: 4 samples were decoded for 2 steps of 8.
        found = {stage: one["seconds"] for stage, one in recorder.spans(2, 8).items()}
        assert found == pytest.approx({"decode": 0.3 * 8, "resize": 0.4 * 8, "forward": 2.0})
    with recorder.recording():
        assert recorder.spans(1, 8) == {}


def test_percentiles_are_those_of_single_spans():
    """A hundred pictures of 1 to 100 ms, each finished in a second span of the same stage."""
    recorder = Recorder(2)
    workers = [recorder.attach(number) for number in (1, 2)]
    with recorder.recording():
        for length in range(1, 101):
            worker = workers[length % 2]
            worker.add("resize", length * 0.9e-3, 1, cpu_s=0.5e-3)
            worker.add("resize", length * 0.1e-3, 0)
        workers[0].add("collate", 0.048, 48)
        found = recorder.spans(1, 100)
    told = {name: found["resize"][name] for name in ("p50_s", "p95_s", "p99_s", "max_s")}
    assert told == pytest.approx(
        {"p50_s": 0.050, "p95_s": 0.095, "p99_s": 0.099, "max_s": 0.1}, rel=0.02
    )
    assert found["resize"]["count"] == 100
    assert found["resize"]["max_s"] == pytest.approx(0.1)
    assert found["collate"]["p50_s"] == pytest.approx(0.001, rel=0.02)  # of one sample


@pytest.mark.parametrize(("stage", "recorded"), [(None, 3), ("resize", 9)])
def test_one_sample_in_some_is_recorded_but_each_that_may_be_delayed(stage, recorded, monkeypatch):
    monkeypatch.setattr(stages, "EVERY", 3)
    recorder = Recorder(0)
    recorder.attach(0)
    with recorder.recording(stage, 0.5):
        for _ in range(9):
            with stages.sample(), stages.span("decode"):
                pass
        with stages.span("tokenise", 9):
            pass
        found = recorder.spans(1, 9)
    assert found["decode"]["count"] == recorded
    assert found["tokenise"]["count"] == 1


def test_cpu_time_is_told_by_process():
    recorder = Recorder(2)
    workers = [recorder.attach(number) for number in (1, 2)]
    with recorder.recording():
        workers[0].add("decode", 0.4, cpu_s=0.3)
        workers[1].add("decode", 0.8, cpu_s=0.1)
        found = recorder.spans(1, 4)["decode"]
    assert found["cpu_s"] == pytest.approx(0.8)  # two pictures were decoded, a step has four
    assert found["workers"] == {
        "1": pytest.approx([0.8, 0.6, 0.4]),
        "2": pytest.approx([1.6, 0.2, 0.8]),
    }


def test_a_recording_has_no_spans_of_the_one_before(monkeypatch):
    monkeypatch.setattr(stages, "SPANS", 4)
    recorder = Recorder(0)
    process = recorder.attach(0)
    for seconds in (1.0, 2.0):
        with recorder.recording():
            for _ in range(3):
                process.add("read", seconds)
            assert recorder.spans(1, 1)["read"]["max_s"] == seconds
            assert recorder.spans(1, 1)["read"]["count"] == 3
    with recorder.recording():
        for _ in range(5):
            process.add("read", 1.0)
        with pytest.raises(OverflowError, match="5 spans in a process; the recorder keeps 4"):
            recorder.spans(1, 1)


@pytest.mark.parametrize("next_one", [True, False])
def test_a_span_that_began_before_a_recording_or_ends_after_it_does_not_count(next_one):
    """A worker is stopped inside of a span, and goes on in the next recording."""
    recorder = Recorder(0)
    recorder.attach(0)
    with recorder.recording():
        begun = stages.span("decode")
        begun.__enter__()
    with recorder.recording() if next_one else nullcontext():
        begun.__exit__(None, None, None)
        assert recorder.spans(1, 1) == {}
    with recorder.recording():
        with stages.span("decode"):
            pass
        assert recorder.spans(1, 1)["decode"]["count"] == 1


def test_threads_of_a_process_lose_no_span():
    recorder = Recorder(0)
    recorder.attach(0)

    def load():
        for _ in range(500):
            with stages.span("decode"):
                pass

    with recorder.recording():
        threads = [threading.Thread(target=load) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert recorder.spans(1, 1)["decode"]["count"] == 2000


def test_a_span_tells_the_cpu_time_of_its_process_only():
    recorder = Recorder(0)
    recorder.attach(0)
    with recorder.recording():
        with stages.span("read"):
            time.sleep(0.05)
        with stages.span("decode"):
            end_s = time.process_time() + 0.05
            while time.process_time() < end_s:
                pass
        found = recorder.spans(1, 1)
    assert found["read"]["cpu_s"] < 0.02 < 0.05 <= found["decode"]["cpu_s"]


def test_a_span_that_begins_soon_after_another_has_no_cpu_time_of_the_time_between():
    recorder = Recorder(0)
    process = recorder.attach(0)
    process.clock = process.cpu_clock = clock = Clock()
    clock.now_s = 5.0
    with recorder.recording():
        recorder._shared[3][3] = 0.0  # it began by the test's clock
        for stage in ("read", "decode"):
            with stages.span(stage):
                clock.now_s += 1.0
            clock.now_s += stages.NEAR_S / 2
        found = recorder.spans(1, 1)
    assert [found[s]["seconds"] for s in ("read", "decode")] == pytest.approx([1.0, 1.0])
    assert [found[s]["cpu_s"] for s in ("read", "decode")] == pytest.approx([1.0, 1.0])


def test_cpu_time_that_is_unknown_is_not_told():
    recorder = Recorder(1)
    trainer, worker = (recorder.attach(number) for number in range(2))
    trainer.cpu_clock = partial(float, "nan")
    with recorder.recording():
        with Span(trainer, "copy", 1), Span(trainer, "decode", 1):
            pass
        worker.add("decode", 0.2, cpu_s=0.1)
        found = recorder.spans(1, 2)
    assert found["copy"]["cpu_s"] is None
    assert found["copy"]["workers"]["0"][1] == 0.0
    assert found["decode"]["cpu_s"] == pytest.approx(0.1)


def record(recorder):
    recorder.attach(1)
    with stages.span("decode", 3):
        pass
    stages._here.add("read", 1.0)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_write_to_the_same_memory(method):
    recorder = Recorder(1)
    recorder.attach(0)
    with recorder.recording():
        child = multiprocessing.get_context(method).Process(target=record, args=(recorder,))
        child.start()
        child.join(60)
        assert set(recorder.spans(1, 1)) == {"read", "decode"}


def test_nothing_is_recorded_unless_it_is_asked_for():
    assert stages.span("decode") is stages.span("read")
    assert stages.stamp() == {}
    recorder = Recorder(0)
    recorder.attach(0)
    assert stages.span("decode") is stages.span("read")
    with recorder.recording():
        assert stages.span("decode") is not stages.span("read")


@pytest.mark.parametrize("fetch", ["sample", "batch"])
def test_taking_tokens_is_counted_once_for_a_sample(fetch, make_pairs):
    pairs, recorder = make_pairs(decode="host", fetch=fetch), Recorder(0)
    recorder.attach(0)
    with recorder.recording():
        whole = pairs.__getitems__
        _ = whole([3]) if whole else pairs[3]
        assert recorder.spans(1, 1)["tokenise"]["count"] == 1
