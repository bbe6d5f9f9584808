"""What of a wait counts as waiting for data, on a device that runs behind its host."""

import pytest
import torch
from meter_parts import Device, Log

from feedrate.jobs.meter import Meter


class Gpu(Device):
    """A device behind its host: it does what is submitted one after the other, and its marks are
    on its own clock."""

    def __init__(self, clock):
        super().__init__()
        self.clock, self.free_s = clock, 0.0

    def submit(self, seconds):
        self.free_s = max(self.free_s, self.clock.now_s) + seconds

    def mark(self):
        return max(self.free_s, self.clock.now_s)

    def synchronize(self):
        super().synchronize()
        self.clock.now_s = self.mark()


LOAD_S, COPY_S, LAUNCH_S, MODEL_S = 0.02, 0.005, 0.01, 0.1


def train_on(device, clock, *, load_s, blocking, steps=20):
    """Steps with a loader that works one batch ahead, as accelerate's does; the window."""
    log = Log()
    meter = Meter(device, log, steps, 5)

    def made():
        for _ in range(steps + 1):
            clock.now_s += load_s
            yield {"pixel_values": torch.zeros(8, 3)}

    def placed(loader):
        batches = iter(loader)
        batch = next(batches)
        while True:
            device.submit(COPY_S)
            if blocking:
                clock.now_s = device.mark()
            following = next(batches)
            yield batch
            batch = following

    loader = placed(meter.waits(made()))
    meter.begin()
    for step in range(1, steps + 1):
        meter.begin_fetch()
        meter.end_fetch([next(loader)])
        clock.now_s += LAUNCH_S
        device.submit(MODEL_S)
        meter.add_loss(torch.tensor(1.0))
        meter.end_step(step)
    return log.named("window")[0]


@pytest.mark.parametrize("blocking", [True, False])
def test_work_that_a_copy_waits_for_is_not_waiting_for_data(clock, blocking):
    window = train_on(Gpu(clock), clock, load_s=0.0, blocking=blocking)
    assert window["data_wait_s"] == pytest.approx(0.0, abs=1e-9)
    assert window["copy_wait_s"] == pytest.approx(15 * COPY_S)


def test_a_wait_while_the_device_stands_still_is_all_waiting_for_data(clock):
    window = train_on(Gpu(clock), clock, load_s=LOAD_S, blocking=True)
    assert window["data_wait_s"] == pytest.approx(15 * LOAD_S)
    assert window["copy_wait_s"] == pytest.approx(15 * COPY_S)


def test_a_wait_while_the_device_still_computes_costs_no_time(clock):
    window = train_on(Gpu(clock), clock, load_s=LOAD_S, blocking=False)
    assert window["data_wait_s"] < LOAD_S  # the first step's: the window opens on an idle device


def test_a_loader_slower_than_the_device_is_waited_for(clock):
    slow_s = 3 * MODEL_S
    window = train_on(Gpu(clock), clock, load_s=slow_s, blocking=False)
    idle_s = window["wall_s"] - 15 * (MODEL_S + COPY_S)
    # Launching is not loading, but the device has nothing to do meanwhile.
    assert window["data_wait_s"] == pytest.approx(idle_s - 15 * LAUNCH_S)
