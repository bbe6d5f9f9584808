"""The meter's arithmetic, on a clock that the test moves."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from meter_parts import Clock, Device, Log

from feedrate.jobs import meter as meter_module
from feedrate.jobs.meter import Meter


def run(clock, *, device=None, **loop):
    """The log of a loop."""
    log = Log()
    drive(clock, log, device or Device(), **loop)
    return log


def drive(clock, log, device, *, steps, warmup, wait_s=lambda _step: 0.0,
          step_s=lambda _step: 0.1, loss=lambda step: 1.0 / step,
          between=lambda _step, _meter: None):  # fmt: skip
    """Call the meter as the training loop does."""
    meter = Meter(device, log, steps, warmup)
    meter.begin()
    for step in range(1, steps + 1):
        meter.begin_fetch()
        clock.now_s += wait_s(step)
        meter.end_fetch([{"return_loss": True, "pixel_values": torch.zeros(8, 3)}])
        meter.add_loss(torch.tensor(loss(step), dtype=torch.float64))
        clock.now_s += step_s(step)
        meter.end_step(step)
        between(step, meter)


def test_the_window_runs_from_the_end_of_warm_up_to_the_last_step(clock):
    log = run(clock, steps=10, warmup=3, step_s=lambda step: 9.0 if step <= 3 else 0.5)
    (window,) = log.named("window")
    assert (window["first_step"], window["last_step"], window["steps"]) == (4, 10, 7)
    assert window["samples"] == 56
    assert window["wall_s"] == pytest.approx(3.5)


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(st.floats(0.001, 2.0), min_size=3, max_size=30),
    waits=st.lists(st.floats(0.0, 2.0), min_size=30, max_size=30),
    warmup=st.integers(1, 2),
)
def test_window_and_steps_agree_with_the_clock_for_any_times(steps, waits, warmup):
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock()
        patch.setattr(meter_module, "perf_counter", clock)
        log = run(clock, steps=len(steps), warmup=warmup,
                  step_s=lambda s: steps[s - 1], wait_s=lambda s: waits[s - 1])  # fmt: skip
    inside = range(warmup, len(steps))
    (window,) = log.named("window")
    assert math.isclose(window["wall_s"], sum(steps[i] + waits[i] for i in inside), abs_tol=1e-9)
    assert math.isclose(window["data_wait_s"], sum(waits[i] for i in inside), abs_tol=1e-9)
    timed = [e for e in log.named("step") if not e["warmup"]]
    assert math.isclose(sum(e["step_s"] for e in timed), window["wall_s"], abs_tol=1e-9)


def test_pauses_are_taken_out_and_recorded(clock):
    def save(step, meter):
        if step in (2, 6):
            with meter.paused():
                clock.now_s += 30.0

    log = run(clock, steps=10, warmup=3, between=save)
    (window,) = log.named("window")
    assert window["paused_s"] == pytest.approx(30.0)  # the pause in the warm-up is not in it
    assert window["wall_s"] == pytest.approx(0.7)
    assert max(e["step_s"] for e in log.named("step")) == pytest.approx(0.1)
    assert log.named("step")[-1]["t_s"] == pytest.approx(61.0)


def test_energy_is_of_the_window_without_its_pauses(clock):
    def save(step, meter):
        if step in (2, 6, 10):
            with meter.paused():
                clock.now_s += 30.0

    device = Device()
    device.counter = lambda: 200.0 * clock.now_s  # a steady 200 W, pauses too
    (window,) = run(clock, steps=10, warmup=3, between=save, device=device).named("window")
    assert window["paused_s"] == pytest.approx(30.0)
    assert window["energy_j"] == pytest.approx(200.0 * window["wall_s"])


def test_a_counter_is_looked_at_once_a_minute(clock):
    seen = []
    device = Device()
    device.counter = lambda: seen.append(clock.now_s) or 5.0
    (window,) = run(clock, steps=40, warmup=1, step_s=lambda _: 10.0, device=device).named("window")
    gaps = [after - before for before, after in pairwise(seen)]
    assert max(gaps) <= 70.0 + 1e-6
    assert len(seen) < 10
    assert window["energy_j"] == 0.0


@pytest.mark.parametrize("missing", ["start", "pause", "end"])
def test_a_reading_that_fails_leaves_the_energy_unknown(clock, missing):
    def save(step, meter):
        if step == 6:
            with meter.paused():
                clock.now_s += 1.0

    readings = {"start": [None, 1, 1, 1], "pause": [1, None, 1, 1], "end": [1, 1, 1, None]}[missing]
    device = Device()
    device.counter = iter(readings).__next__
    (window,) = run(clock, steps=10, warmup=3, between=save, device=device).named("window")
    assert window["energy_j"] is None


def test_the_time_between_epochs_is_waiting_for_data(clock):
    def restart(step, meter):
        if step == 5:
            meter.end_epoch()
            with meter.paused():
                clock.now_s += 7.0
            clock.now_s += 0.4  # old workers are stopped, new ones started

    log = run(clock, steps=10, warmup=3, wait_s=lambda _: 0.05, between=restart)
    waits = {e["step"]: e["data_wait_s"] for e in log.named("step")}
    assert waits[6] == pytest.approx(0.45)
    assert waits[7] == pytest.approx(0.05)
    assert log.named("window")[0]["data_wait_s"] == pytest.approx(7 * 0.05 + 0.4)
    assert [e["step"] for e in log.named("step") if e.get("starts_epoch")] == [6]


def test_the_device_is_synchronised_at_both_ends_only(clock):
    device = Device()
    run(clock, steps=50, warmup=5, device=device)
    assert device.synchronised == 3  # begin, window's start, window's end
    assert device.peaks_reset == 1


def test_events_wait_for_losses_that_are_not_there_yet_and_keep_their_order(clock):
    device = Device(late=True)
    seen = []

    def look(step, meter):
        if step == 4:
            for number in device.deferred[:3]:
                number.is_ready = True
        seen.append(len(log.named("step")))

    log = Log()
    drive(clock, log, device, steps=8, warmup=1, loss=float, between=look)
    assert seen[:5] == [1, 1, 1, 1, 3]  # step 1 closes the warm-up, which waits
    assert [e["loss"] for e in log.named("step")] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [e["event"] for e in log.events[-2:]] == ["window", "machine"]


def test_losses_that_stay_on_the_device_are_read_where_the_loop_reads_its_own(clock):
    device, written = Device(late=True), []

    def log_every_four(step, meter):
        if step % 4 == 0:
            meter.write_steps(wait=True)
        written.append(step - len(log.named("step")))

    log = Log()
    drive(clock, log, device, steps=11, warmup=2, between=log_every_four)
    assert written == [1, 0, 1, 0, 1, 2, 3, 0, 1, 2, 0]
    assert [e["loss"] for e in log.named("step")] == [1 / step for step in range(1, 12)]
    assert device.synchronised == 3, "reading waits for no other device work"


def test_micro_steps_make_one_step(clock):
    log = Log()
    meter = Meter(Device(), log, 3, 1)
    meter.begin()
    for step in (1, 2, 3):
        meter.begin_fetch()
        meter.end_fetch([{"x": torch.zeros(4, 1)}, {"x": torch.zeros(4, 1)}])
        meter.add_loss(torch.tensor(0.25))
        meter.add_loss(torch.tensor(0.50))
        clock.now_s += 1.0
        meter.end_step(step)
    assert [(e["samples"], e["loss"]) for e in log.named("step")] == [(8, 0.75)] * 3


def test_the_machine_is_read_at_both_ends_of_the_window_and_outside_of_it(clock):
    """Reading takes a second here, which belongs to no step of the window."""
    device = Device()

    def read():
        clock.now_s += 1.0
        return {"clock_mhz": 1980}

    device.condition = read
    log = run(clock, device=device, steps=4, warmup=2, step_s=lambda _: 0.5)
    (window,) = log.named("window")
    assert window["wall_s"] == pytest.approx(1.0)
    start, end = log.named("machine")
    assert start["device"] == {"clock_mhz": 1980}
    assert end["host"].keys() == start["host"].keys()
    assert log.events[-2:] == [window, end], (
        "who times the window from outside waits for no reading"
    )
