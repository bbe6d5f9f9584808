"""faults.yaml is complete, and each fault acts where its kind says."""

import itertools
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import msgspec
import pytest
import torch
from benchmarks.lab import faults, plant
from benchmarks.lab.neighbour import Neighbour, keep_busy
from benchmarks.lab.plant import PLANTS, Planted
from benchmarks.lab.runs import PROTOCOL, Bench, CleanStep, amount, planter

from feedrate.cli import jobs
from feedrate.devices import launch
from feedrate.jobs import worker
from feedrate.loading import dataset
from feedrate.loading.decoders import cache

ISSUE = {
    "read",
    "decode",
    "collate",
    "copy",
    "rank_input",
    "rank_backward",
    "all_reduce",
    "stolen_core",
    "memory_cap",
    "epoch_boundary",
    "noisy_neighbour",
}
"""The kinds that the laboratory must have."""
LAB = faults.read()


def test_every_kind_has_at_least_three_grades():
    grades = {fault.kind: len(fault.grades) for fault in LAB.faults}
    assert grades.keys() >= ISSUE
    assert all(grades[kind] >= 3 for kind in ISSUE)


def test_half_of_the_combinations_are_held_out():
    halves = [half for fault in LAB.faults for half in fault.grades.values()]
    assert abs(halves.count("known") - halves.count("held_out")) <= 1
    for fault in LAB.faults:
        if fault.kind in ISSUE:
            assert set(fault.grades.values()) == {"known", "held_out"}


def test_every_fault_can_be_planted():
    for fault in LAB.faults:
        assert fault.setup in LAB.setups
        for part in LAB.parts(fault):
            assert part.kind in PLANTS or part.how == "process"


def test_the_order_is_fixed_and_mixes_clean_runs_with_faults():
    cases = faults.order(LAB, LAB.clean.runs)
    assert cases == faults.order(LAB, LAB.clean.runs)
    assert len({case.name for case in cases}) == len(cases)
    clean = [place for place, case in enumerate(cases) if case.fault is None]
    assert len(clean) == LAB.clean.runs
    assert max(after - before for before, after in itertools.pairwise(clean)) <= 3


def test_half_and_kinds_choose_faults():
    chosen = faults.order(LAB, 0, ["read", "copy"], "held_out")
    assert {case.half for case in chosen} == {"held_out"}
    assert {case.fault.kind for case in chosen} == {"read", "copy"}


@pytest.fixture
def delays(monkeypatch):
    """The delays that were made, s."""
    made = []
    monkeypatch.setattr(plant, "delay", lambda how, seconds: made.append(seconds))
    return made


def test_a_late_read_delays_each_sample(monkeypatch, delays):
    monkeypatch.setattr(cache, "read", lambda source, row, draw: row)
    plant.read(Planted(kind="read", seconds=0.8, batch=4))
    assert [cache.read(None, row, None) for row in (3, 4)] == [3, 4]
    assert delays == [0.2, 0.2]


def test_a_slow_collate_delays_each_batch(monkeypatch, delays):
    monkeypatch.setattr(dataset, "collate", dataset.collate)
    plant.collate(Planted(kind="collate", seconds=0.3))
    dataset.collate({"input_ids": torch.zeros(2)})
    assert delays == [0.3]


def test_a_slow_copy_delays_training_and_the_rounds_after_it(monkeypatch, delays):
    import accelerate.data_loader
    import accelerate.utils

    for module in (accelerate.data_loader, accelerate.utils):
        monkeypatch.setattr(module, "send_to_device", lambda batch, device: batch)
    plant.copy(Planted(kind="copy", seconds=0.3))
    accelerate.data_loader.send_to_device({}, "cpu")
    accelerate.utils.send_to_device({}, "cpu")
    assert delays == [0.3, 0.3]


def test_only_the_rank_of_a_fault_is_slow(monkeypatch, delays):
    from accelerate import Accelerator

    monkeypatch.setattr(Accelerator, "backward", lambda self, loss: None)
    text = '[{"kind": "rank_backward", "seconds": 0.3, "rank": 1}]'
    plant.plant(0, text)
    Accelerator.backward(None, 0.0)
    assert delays == []
    plant.plant(1, text)
    Accelerator.backward(None, 0.0)
    assert delays == [0.3]


def test_short_epochs_have_few_rows(monkeypatch):
    monkeypatch.setattr(dataset, "EpochOrder", dataset.EpochOrder)
    plant.epoch_boundary(Planted(kind="epoch_boundary", rows=8))
    order = dataset.EpochOrder(48, 1, numbered=False, a_step=4)
    assert len(order) == len(set(order)) == 8


def test_a_step_beyond_the_memory_cap_runs_out_of_memory(monkeypatch):
    from accelerate import Accelerator

    from feedrate.devices.kinds.cpu import DeviceAdapter
    from feedrate.jobs.worker import classify

    monkeypatch.setattr(Accelerator, "backward", lambda self, loss: None)
    monkeypatch.setattr(DeviceAdapter, "capacity_gib", DeviceAdapter.capacity_gib)
    monkeypatch.setattr(DeviceAdapter, "memory", lambda _: SimpleNamespace(peak_gib=2.0))
    plant.memory_cap(Planted(kind="memory_cap", cap_gib=3.0))
    Accelerator.backward(None, 0.0)
    assert DeviceAdapter.capacity_gib(None) == 3.0
    plant.memory_cap(Planted(kind="memory_cap", cap_gib=1.0))
    with pytest.raises(MemoryError) as error:
        Accelerator.backward(None, 0.0)
    assert classify(error.value).out_of_memory


def test_a_slow_network_delays_the_gradients_of_ddp_and_the_exchange_alone(tmp_path):
    """In a process of its own: it replaces functions of torch."""
    script = f"""
import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from benchmarks.lab import plant
delays = []
plant.delay = lambda how, seconds: delays.append(seconds)
plant.all_reduce(plant.Planted(kind="all_reduce", seconds=1.0))
torch.distributed.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
model = torch.nn.Linear(3, 1)
ddp = DistributedDataParallel(model)
ddp(torch.ones(2, 3)).sum().backward()
print(sum(delays), model.weight.grad.tolist())
torch.distributed.all_reduce(torch.zeros(2))
print(delays[-1])

def theirs(state, bucket):
    print("theirs")
    return default_hooks.allreduce_hook(state, bucket)
ddp.register_comm_hook(None, theirs)
ddp(torch.ones(2, 3)).sum().backward()
"""
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert said == ["1.0 [[2.0, 2.0, 2.0]]", "0.5", "theirs"]


def test_a_computed_delay_takes_cpu_time_and_a_sleep_takes_none():
    for how, takes in (("spin", True), ("sleep", False)):
        begin_s = time.thread_time()
        plant.delay(how, 0.05)
        assert (time.thread_time() - begin_s >= 0.05) is takes


def test_a_neighbour_is_busy_for_its_share_of_the_time():
    now, ticks, rests = [0.0], [], []

    def clock():
        now[0] += 0.01
        ticks.append(now[0])
        return now[0]

    def rest(seconds):
        rests.append(seconds)
        now[0] += seconds

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.lab.neighbour.time.sleep", rest)
        keep_busy(0.25, 1.0, lambda: now[0] > 9, clock)
    assert sum(rests) / now[0] == pytest.approx(0.75, abs=0.05)


def test_a_neighbour_waits_until_it_begins_and_is_no_child_of_a_job():
    neighbour = Neighbour(1, 1.0, 0.1)
    try:
        (process,) = neighbour._processes
        assert process.poll() is None
        neighbour.begin()
        deadline = time.monotonic() + 20
        while os.sched_getaffinity(process.pid) == os.sched_getaffinity(0):
            if len(os.sched_getaffinity(0)) == 1 or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        assert len(os.sched_getaffinity(process.pid)) == 1
    finally:
        neighbour.end()
    assert process.poll() is not None


def test_grades_are_shares_of_a_clean_step_of_its_window_or_of_its_memory():
    clean = CleanStep(step_s=0.1, peak_gib=0.6)
    assert amount(LAB.fault("read"), 0.2, clean, 8).seconds == pytest.approx(0.02)
    timed = PROTOCOL.steps - PROTOCOL.warmup_steps
    assert amount(LAB.fault("epoch_boundary"), 0.1, clean, 8).rows == round(0.1 * timed) * 8
    assert amount(LAB.fault("memory_cap"), 1.5, clean, 8).cap_gib == pytest.approx(0.4)
    assert amount(LAB.fault("rank_input"), 0.2, clean, 8).rank == 1


def test_the_spec_of_a_run_says_what_is_planted(monkeypatch, tmp_path):
    monkeypatch.setattr(Bench, "_prepare", lambda self: tmp_path)
    bench = Bench(LAB, tmp_path, sys.executable)
    bench._clean = dict.fromkeys(LAB.setups, CleanStep(step_s=0.1, peak_gib=0.6))
    for case in faults.order(LAB, 3):
        spec = bench.spec(case)
        text = spec.software.environment[plant.VARIABLE]
        planted = msgspec.json.decode(text, type=list[Planted])
        parts = LAB.parts(case.fault) if case.fault else []
        assert [one.kind for one in planted] == [p.kind for p in parts if p.how != "process"]
        assert (spec.study, spec.levels) == ("lab", {"run": case.name})
        assert spec.count == LAB.setups[case.setup].count


def test_the_planting_interpreter_replaces_the_worker_and_nothing_else(tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    made = planter(tmp_path / "lab", str(python))
    asked = {
        "-m feedrate worker --run here": "-u -m benchmarks.lab.plant --run here",
        "-u -m feedrate worker --run here": "-u -m benchmarks.lab.plant --run here",
        "-m torch.distributed.run --module -- feedrate worker": None,
        "-c pass": None,
    }
    for words, instead in asked.items():
        said = subprocess.check_output([made, *words.split()], text=True).strip()
        assert said == (instead or words)


def test_faults_are_planted_after_the_process_is_bound_and_before_its_job(monkeypatch):
    events = []
    monkeypatch.setattr(worker, "bind_process", lambda run: events.append("bound"))
    monkeypatch.setattr(launch, "rank_from_environment", lambda: (1, 2, 1, 2))
    monkeypatch.setattr(jobs, "run", lambda job, words: worker.bind_process("run") or 3)
    monkeypatch.setattr(plant, "plant", lambda rank, text: events.append((rank, text)))
    monkeypatch.setenv(plant.VARIABLE, "[faults]")
    assert plant.main(["--run", "run"]) == 3
    assert events == ["bound", (1, "[faults]")]
