"""Time by stage in shared memory."""

import multiprocessing
import threading
import time
from contextlib import nullcontext
from functools import partial

import pytest

from feedrate.loading import stages
from feedrate.loading.stages import Recorder


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """No test leaves its recorder in this process: batches would bear its stamp."""
    monkeypatch.setattr(stages, "_process", None)


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


def test_the_percentile_is_that_of_single_spans():
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
    assert found["resize"]["count"] == 100
    assert found["resize"]["p95_s"] == pytest.approx(0.095, rel=0.02)
    assert found["collate"]["p95_s"] == pytest.approx(0.001, rel=0.02)  # of one sample


def test_cpu_time_is_that_of_all_processes():
    recorder = Recorder(2)
    workers = [recorder.attach(number) for number in (1, 2)]
    with recorder.recording():
        workers[0].add("decode", 0.4, cpu_s=0.3)
        workers[1].add("decode", 0.8, cpu_s=0.1)
        found = recorder.spans(1, 4)["decode"]
    assert found["cpu_s"] == pytest.approx(0.8)  # two pictures were decoded, a step has four


def test_a_recording_has_no_spans_of_the_one_before(monkeypatch):
    monkeypatch.setattr(stages, "SPANS", 4)
    recorder = Recorder(0)
    process = recorder.attach(0)
    for seconds in (1.0, 2.0):
        with recorder.recording():
            for _ in range(3):
                process.add("read", seconds)
            assert recorder.spans(1, 1)["read"]["p95_s"] == seconds
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


def test_cpu_time_that_is_unknown_is_not_told():
    recorder = Recorder(1)
    trainer, worker = (recorder.attach(number) for number in range(2))
    trainer.cpu_clock = partial(float, "nan")
    with recorder.recording():
        with trainer.span("copy", 1), trainer.span("decode", 1):
            pass
        worker.add("decode", 0.2, cpu_s=0.1)
        found = recorder.spans(1, 2)
    assert found["copy"]["cpu_s"] is None
    assert found["decode"]["cpu_s"] == pytest.approx(0.1)


def record(recorder):
    recorder.attach(1)
    with stages.span("decode", 3):
        pass
    stages._process.add("read", 1.0)


def test_processes_write_to_the_same_memory():
    recorder = Recorder(1)
    recorder.attach(0)
    with recorder.recording():
        child = multiprocessing.get_context("spawn").Process(target=record, args=(recorder,))
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


@pytest.mark.parametrize("decode", ["reference", "host"])
def test_taking_tokens_is_counted_once_for_a_sample(decode, make_pairs):
    pairs, recorder = make_pairs(decode=decode), Recorder(0)
    recorder.attach(0)
    with recorder.recording():
        whole = pairs.__getitems__
        _ = whole([3]) if whole else pairs[3]
        assert recorder.spans(1, 1)["tokenise"]["count"] == 1
