"""Each fault of benchmarks/faults.py acts where its kind says.

A fault that is planted nowhere would count as one that the product does not name.
"""

import json
import time

import pytest
from benchmarks import planted_worker
from benchmarks.faults import FAULTS, project

from feedrate.devices.kinds import cpu


def test_every_fault_can_be_planted():
    assert {fault.planted.get("kind") for fault in FAULTS.values()} == {
        *planted_worker.PLANTS,
        None,
    }
    # Verdicts need the rates of the loader alone and the model alone.
    assert project().studies["faults"].protocol.ceiling_s


@pytest.mark.parametrize("rank", [0, 1])
def test_only_the_named_rank_gets_the_fault(rank, monkeypatch):
    delays = []
    plants = planted_worker.PLANTS
    monkeypatch.setitem(plants, "slow_backward", lambda seconds: delays.append(seconds))
    fault = {"kind": "slow_backward", "seconds": 0.5, "only_rank": 1}
    planted_worker.plant(rank, json.dumps(fault))
    assert delays == [0.5] * rank


def test_a_clean_run_has_no_fault():
    planted_worker.plant(0, "{}")


def test_the_device_refuses_more_than_the_limit(monkeypatch):
    accelerate = pytest.importorskip("accelerate")
    monkeypatch.setattr(accelerate.Accelerator, "backward", lambda self: None)
    monkeypatch.setattr(cpu.DeviceAdapter, "capacity_gib", None)
    planted_worker.limited_memory(0.001)
    with pytest.raises(MemoryError, match="out of memory"):
        accelerate.Accelerator.backward(None)


def test_busy_uses_cpu_time():
    start_s = time.thread_time()
    planted_worker.busy(0.02)
    assert time.thread_time() - start_s >= 0.02
