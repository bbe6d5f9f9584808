"""The physics of a device, measured on a CPU, and on devices with a planted fault."""

import time

import pytest

from feedrate.cli import selftest
from feedrate.devices.kinds.cpu import DeviceAdapter
from feedrate.jobs import probe as probing


def outcomes(device, precisions=("fp32",), peak_tflops=None):
    """The outcome of each line of a device, by the last word of its subject."""
    answer = probing.probe(device, 0, list(precisions), seconds=0.05)
    lines = [selftest.judge_product(one, peak_tflops, "card 0") for one in answer.products]
    return answer, {line.subject.split()[-1]: line.outcome for line in lines}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(probing, "SIDES", (256,))


def test_a_cpu_follows_physics():
    answer, found = outcomes(DeviceAdapter(0, 1), ("fp32", "bf16"))
    assert found == {"fp32": "unknown", "bf16": "unknown"}
    assert all(product.tflops > 0 for product in answer.products)


def test_a_precision_that_fails_hides_no_other():
    answer, found = outcomes(DeviceAdapter(0, 1), ("fp9", "fp32"), peak_tflops=1e9)
    assert found["fp9"] == "failed"
    assert [bool(product.failure) for product in answer.products] == [True, False]


def test_each_product_has_the_fp32_of_its_precision(monkeypatch):
    """The one before must not leave TF32 on."""
    held = []
    monkeypatch.setattr(DeviceAdapter, "hold_fp32", lambda _, precision: held.append(precision))
    outcomes(DeviceAdapter(0, 1), ("tf32", "fp32"))
    assert held == ["tf32", "fp32"]


def test_fp8_is_unknown_where_only_the_trainer_multiplies_in_it(monkeypatch):
    monkeypatch.setattr(DeviceAdapter, "fp8_by_torchao", False)
    assert outcomes(DeviceAdapter(0, 1), ("fp8",))[1]["fp8"] == "unknown"


class Queueing(DeviceAdapter):
    """A device that works behind the host's back: a step takes 20 ms, and is only submitted."""

    waits = True

    def __init__(self):
        super().__init__(0, 1)
        self._free_s = 0.0

    def end_of_step(self):
        self._free_s = max(self._free_s, time.perf_counter()) + 0.02

    def synchronize(self):
        if self.waits:
            time.sleep(max(0.0, self._free_s - time.perf_counter()))


def test_a_synchronisation_that_does_nothing_shows_as_an_impossible_rate():
    """2 x 256^3 operations in 20 ms are 1.7 GFLOP/s, whatever the host can do."""
    device, peak_tflops = Queueing(), 0.0017
    assert outcomes(device, peak_tflops=peak_tflops)[1]["fp32"] == "passed"
    device.waits = False
    assert outcomes(device, peak_tflops=peak_tflops)[1]["fp32"] == "failed"


def test_energy_is_read_while_products_run(monkeypatch):
    device = DeviceAdapter(0, 1)
    start_s = time.monotonic()
    monkeypatch.setattr(device, "energy_counter", lambda: lambda: (time.monotonic() - start_s) * 50)
    answer, _ = outcomes(device)
    assert selftest.judge_energy([answer], 60).outcome == "passed"
    assert selftest.judge_energy([answer], 40).outcome == "failed"
