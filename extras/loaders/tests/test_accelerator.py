"""Emulated accelerators: their steps by a clock of the test, and what is said of a window."""

import itertools
from multiprocessing import Pipe

import pytest

from feed_builder import feeding
from feedrate_loaders import accelerator
from feedrate_loaders.accelerator import FeedError, Step, take_batches, window


class Clock:
    """Time that passes only when somebody waits."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s

    def wait(self, seconds):
        self.now_s += seconds

    def batches(self, each_s, size=4):
        """Batches that take so long to come, in turn."""
        for seconds in itertools.cycle(each_s):
            self.wait(seconds)
            yield {"input_ids": [0] * size}


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(accelerator, "perf_counter", clock)
    monkeypatch.setattr(accelerator, "sleep", clock.wait)
    return clock


def test_an_accelerator_waits_is_busy_and_asks_again(clock):
    steps = take_batches(clock.batches([1.0]), [3.0], 8.0)
    assert steps == [Step(0.0, 4.0, 3.0, 4), Step(4.0, 8.0, 3.0, 4)]


def test_recorded_steps_are_replayed_in_turn(clock):
    steps = take_batches(clock.batches([0.0]), [1.0, 5.0], 13.0)
    assert [one.busy_s for one in steps] == [1.0, 5.0, 1.0, 5.0, 1.0]
    assert steps[-1].ended_s == 13.0


def test_a_pause_that_takes_too_long_is_idle_time(clock, monkeypatch):
    monkeypatch.setattr(accelerator, "sleep", lambda seconds: clock.wait(2 * seconds))
    steps = take_batches(clock.batches([0.0]), [1.0], 3.0)
    assert steps == [Step(0.0, 2.0, 1.0, 4), Step(2.0, 4.0, 1.0, 4)]


def test_a_window_has_whole_steps_in_whole_rounds():
    steps = [Step(second, second + 1.0, 0.5, 4) for second in range(10)]
    assert window(steps, 0.5, 8.5, 1) == steps[1:8]
    assert window(steps, 0.5, 8.5, 3) == steps[1:7]
    assert window(steps, 0.5, 3.5, 8) == steps[1:3], "a round is longer than the window"
    with pytest.raises(FeedError, match="no whole batch in 2 s"):
        window(steps, 20.0, 22.0, 1)


def test_every_accelerator_must_be_busy():
    assert feeding(2, 0.9, 1.0).fed
    assert not feeding(2, 0.89, 1.0).fed


class Pipes:
    """The ends of accelerators that have taken these steps already."""

    def __init__(self, steps):
        self.said = [None, steps]
        self.heard = []

    def recv(self):
        return self.said.pop(0)

    def send(self, until_s):
        self.heard.append(until_s)


def test_the_window_is_the_same_for_all_and_rates_add_up(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(accelerator, "perf_counter", clock)
    monkeypatch.setattr(accelerator, "sleep", clock.wait)
    loads = [{"job_cpu_s": 1.0, "cores_busy_s": 0.0, "cores_s": 0.0}]
    loads += [{"job_cpu_s": 3.0, "cores_busy_s": 5.0, "cores_s": 16.0}]
    monkeypatch.setattr(accelerator, "host_load", lambda: loads.pop(0))
    fast = [Step(second, second + 1.0, 1.0, 4) for second in range(12)]
    slow = [Step(second, second + 2.0, 1.0, 4) for second in range(0, 12, 2)]
    pipes = [Pipes(fast), Pipes(slow)]
    found = accelerator.measure(pipes, 1, [1.0], 1)
    end_s = accelerator.WARMUP_S + accelerator.WINDOW_STEPS / accelerator.BUSY
    assert [one.heard for one in pipes] == [[pytest.approx(end_s)]] * 2
    assert found.busy == [1.0, 0.5]
    assert found.samples_per_s == pytest.approx(4.0 + 2.0)
    assert found.cpu_s == pytest.approx(2.0 / found.window_s / 6.0)
    assert found.cores_busy == 5 / 16


@pytest.mark.parametrize(("said", "told"), [("no space", "no space"), (None, "was killed")])
def test_an_accelerator_that_fails_says_why(said, told):
    here, there = Pipe()
    if said:
        there.send(said)
    there.close()
    with pytest.raises(FeedError, match=told):
        accelerator.measure([here], 1, [1.0], 1)
