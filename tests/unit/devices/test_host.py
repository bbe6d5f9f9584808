"""What the host grants to a job, read from kernel files made for the test."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from feedrate.devices import host, load


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Folders in place of /proc and /sys/fs/cgroup; affinity of 64 cores."""
    proc, cgroup = tmp_path / "proc", tmp_path / "sys/fs/cgroup"
    (proc / "self").mkdir(parents=True)
    cgroup.mkdir(parents=True)
    monkeypatch.setattr(host, "PROC", proc)
    monkeypatch.setattr(host, "SYS", tmp_path / "sys")
    monkeypatch.setattr(host.os, "sched_getaffinity", lambda _pid: set(range(64)))
    return proc, cgroup


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("group", "files", "cores"),
    [
        (None, {}, 64),
        ("0::/slice/job", {"slice/job/cpu.max": "400000 100000"}, 4),
        ("0::/slice/job", {"slice/job/cpu.max": "max 100000", "slice/cpu.max": "250000 100000"}, 2),
        ("0::/host/path/not/mounted", {"cpu.max": "800000 100000"}, 8),
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        (
            "4:memory:/job\n3:cpu:/job",
            {"cpu/job/cpu.cfs_quota_us": "300000", "cpu/job/cpu.cfs_period_us": "100000"},
            3,
        ),
        (
            "3:cpu:/job",
            {"cpu/job/cpu.cfs_quota_us": "-1", "cpu/job/cpu.cfs_period_us": "100000"},
            64,
        ),
    ],
    ids=["none", "v2", "a tighter parent", "container", "less than one", "v1", "v1 without"],
)
def test_cores_by_the_quota_of_control_groups(kernel, group, files, cores):
    proc, cgroup = kernel
    if group:
        write(proc / "self/cgroup", f"{group}\n")
    for name, text in files.items():
        write(cgroup / name, f"{text}\n")
    assert host.cores_granted() == cores


def test_the_quota_counts_for_the_jobs_affinity_and_not_for_a_ranks(kernel):
    proc, cgroup = kernel
    assert host.cores_granted(affinity=96) == 96
    write(proc / "self/cgroup", "0::/\n")
    write(cgroup / "cpu.max", "800000 100000\n")
    assert host.cores_granted(affinity=96) == 8


def test_memory_is_the_limit_where_there_is_one(kernel, monkeypatch):
    proc, cgroup = kernel
    total = SimpleNamespace(total=32 * host.GIB)
    monkeypatch.setattr(host.psutil, "virtual_memory", lambda: total)
    assert host.memory_gib() == 32
    write(proc / "self/cgroup", "0::/job\n")
    write(cgroup / "job/memory.max", f"{4 * host.GIB}\n")
    assert host.memory_gib() == 4
    write(cgroup / "job/memory.max", "max\n")
    assert host.memory_gib() == 32


def test_a_training_job_on_this_host_is_found():
    before = host.other_training_jobs()
    idle = ["-c", "import time; time.sleep(60)", *host.WORKERS[0]]
    with subprocess.Popen([sys.executable, *idle]) as job:
        end_s = time.monotonic() + 10  # until the child has its own command line
        while host.other_training_jobs() == before and time.monotonic() < end_s:
            time.sleep(0.05)
        found = host.other_training_jobs()
        job.kill()
    assert found == before + 1


def test_oom_kills_of_the_kernel(kernel):
    proc, _ = kernel
    assert host.oom_kills() == 0
    write(proc / "vmstat", "pgfault 12\noom_kill 3\n")
    assert host.oom_kills() == 3


@pytest.mark.parametrize(
    ("group", "file"),
    [("0::/job", "job/memory.events"), ("4:memory:/job", "memory/job/memory.oom_control")],
)
def test_kills_in_other_control_groups_are_not_ours(kernel, group, file):
    proc, cgroup = kernel
    write(proc / "vmstat", "oom_kill 30\n")
    write(proc / "self/cgroup", f"{group}\n")
    write(cgroup / file, "oom 2\noom_kill 1\n")
    assert host.oom_kills() == 1


def test_facts_of_this_host():
    facts = host.host_facts()
    assert 1 <= host.cores_granted() <= facts["cores_of_host"]
    assert facts["host_memory_gib"] > 0.1
    assert facts["packages"]["torch"]
    assert "optimum-habana" not in facts["packages"]
    assert host.machine_state()["load_1min"] >= 0


def test_counters_of_the_host(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "PROC", tmp_path)
    assert load.host_load() == {}
    monkeypatch.setattr(host.os, "sched_getaffinity", lambda _: {1, 3, 9})
    monkeypatch.setattr(load, "cpu_time_s", lambda: 1.5)
    monkeypatch.setattr(load, "core_wait_s", lambda: 0.25)
    cores = "".join(f"cpu{n} {n}00 0 10 50 5 0 0 20 0 0\n" for n in range(4))
    (tmp_path / "stat").write_text(f"cpu  100 20 30 9000 800 4 6 40 7 7\n{cores}intr 7\n")
    (tmp_path / "pressure").mkdir()
    for number, what in enumerate(("cpu", "memory"), start=1):
        text = (
            f"some avg10=0.00 avg60=0.00 avg300=0.00 total={number}500000\nfull avg10=0 total=9\n"
        )
        (tmp_path / "pressure" / what).write_text(text)
    found = load.host_load()
    assert found.pop("cpu_wanted_s") == pytest.approx(200 / load.TICKS)
    assert found.pop("cpu_stolen_s") == pytest.approx(40 / load.TICKS)
    assert found.pop("job_cpu_s") >= 1.5  # and what children used that have ended
    # Cores 1 and 3 may be used: what a hypervisor took of them is neither busy nor idle.
    assert found.pop("cores_busy_s") == pytest.approx(420 / load.TICKS)
    assert found.pop("cores_s") == pytest.approx(570 / load.TICKS)
    assert found == {"job_waited_s": 0.25, "cpu_waited_s": 1.5, "memory_waited_s": 2.5}


def test_programs_of_others_are_named_by_their_use_and_without_their_arguments():
    burn = [sys.executable, "-c", "while True: pass", "a secret"]
    with subprocess.Popen(burn) as one, subprocess.Popen(burn) as other:
        try:
            before = load.cpu_by_process(one.pid)
            time.sleep(0.5)
            after = load.cpu_by_process(one.pid)
            name, pid, used_s = load.busiest(
                {other.pid: before[other.pid]}, {other.pid: after[other.pid]}
            )[0]
            assert one.pid not in after
            assert other.pid not in load.cpu_by_process(os.getpid())
        finally:
            one.kill()
            other.kill()
    assert name == Path(os.path.realpath(sys.executable)).name[:15] or "python" in name
    assert (pid, used_s > 0.05) == (other.pid, True)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {}, []),
        ({1: ("a", 5.0)}, {1: ("a", 5.0)}, []),
        # A process that began meanwhile counts from its start; those of one name together.
        ({1: ("a", 5.0)}, {1: ("a", 6.0), 2: ("a", 0.5), 3: ("b", 2.0)}, ["b 3 2.0", "a 0 1.5"]),
        ({}, {n: (f"p{n}", 10.0 - n) for n in range(5)}, ["p0 0 10.0", "p1 1 9.0", "p2 2 8.0"]),
        ({}, {1: ("a", 9.0), 2: ("b", 0.1)}, ["a 1 9.0"]),
    ],
)
def test_the_busiest_programs(before, after, expected):
    found = load.busiest(before, after)
    assert [f"{name} {pid} {used_s}" for name, pid, used_s in found] == expected


def test_a_busy_machine_is_told_with_what_keeps_it_busy(monkeypatch):
    loads = iter(
        {"cores_s": end_s, "cores_busy_s": end_s * 0.95, "job_cpu_s": end_s * 0.05}
        for end_s in (0.0, 2.0)
    )
    uses = iter([{}, {7: ("python3", 1.2), 8: ("chromium", 0.6)}])
    monkeypatch.setattr(load, "host_load", lambda: next(loads))
    monkeypatch.setattr(load, "cpu_by_process", lambda _: next(uses))
    monkeypatch.setattr(load, "WATCHED_S", 0.0)
    monkeypatch.setattr(host.os, "sched_getaffinity", lambda _: {0, 1})
    assert load.Watch().busy() == (
        "both cores are 90% busy with other programs (python3 60%, chromium 30%)"
    )
