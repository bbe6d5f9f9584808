"""What the host grants, read from stand-in kernel files."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedrate.devices import host


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Folders in the place of /proc and /sys/fs/cgroup; affinity of 64 cores."""
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    cgroup.mkdir()
    monkeypatch.setattr(host.os, "sched_getaffinity", lambda _pid: set(range(64)))
    return proc, cgroup


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_any_quota_the_affinity_counts(kernel):
    assert host.cores_granted(*kernel) == 64


def test_quota_of_cgroup_v2(kernel):
    proc, cgroup = kernel
    write(proc / "self/cgroup", "0::/slice/job\n")
    write(cgroup / "slice/job/cpu.max", "400000 100000\n")
    assert host.cores_granted(proc, cgroup) == 4


def test_a_parent_group_can_be_tighter(kernel):
    proc, cgroup = kernel
    write(proc / "self/cgroup", "0::/slice/job\n")
    write(cgroup / "slice/job/cpu.max", "max 100000\n")
    write(cgroup / "slice/cpu.max", "250000 100000\n")
    assert host.cores_granted(proc, cgroup) == 2


def test_quota_of_cgroup_v1(kernel):
    proc, cgroup = kernel
    write(proc / "self/cgroup", "4:memory:/job\n3:cpu:/job\n")
    write(cgroup / "cpu/job/cpu.cfs_quota_us", "300000\n")
    write(cgroup / "cpu/job/cpu.cfs_period_us", "100000\n")
    assert host.cores_granted(proc, cgroup) == 3


def test_cgroup_v1_says_minus_one_for_no_quota(kernel):
    proc, cgroup = kernel
    write(proc / "self/cgroup", "3:cpu:/job\n")
    write(cgroup / "cpu/job/cpu.cfs_quota_us", "-1\n")
    write(cgroup / "cpu/job/cpu.cfs_period_us", "100000\n")
    assert host.cores_granted(proc, cgroup) == 64


def test_in_a_container_the_root_of_the_mount_is_read(kernel):
    proc, cgroup = kernel
    write(proc / "self/cgroup", "0::/host/path/not/mounted\n")
    write(cgroup / "cpu.max", "800000 100000\n")
    assert host.cores_granted(proc, cgroup) == 8


def test_the_quota_counts_for_the_jobs_affinity_and_not_for_a_ranks(kernel):
    proc, cgroup = kernel
    assert host.cores_granted(proc, cgroup, affinity=96) == 96
    write(proc / "self/cgroup", "0::/\n")
    write(cgroup / "cpu.max", "800000 100000\n")
    assert host.cores_granted(proc, cgroup, affinity=96) == 8


def test_less_than_one_core_is_one(kernel):
    proc, cgroup = kernel
    write(proc / "self/cgroup", "0::/\n")
    write(cgroup / "cpu.max", "50000 100000\n")
    assert host.cores_granted(proc, cgroup) == 1


@given(text=st.text(max_size=40))
def test_no_contents_of_a_quota_file_break_the_count(text, tmp_path_factory):
    root = tmp_path_factory.mktemp("kernel")
    write(root / "proc/self/cgroup", "0::/\n")
    (root / "cgroup").mkdir()
    (root / "cgroup/cpu.max").write_bytes(text.encode("utf-8", "replace"))
    assert host.cores_granted(root / "proc", root / "cgroup") >= 1


def test_memory_is_the_limit_where_there_is_one(kernel):
    proc, cgroup = kernel
    write(proc / "meminfo", "MemTotal:       33554432 kB\nMemFree: 1 kB\n")
    assert host.memory_gib(proc, cgroup) == 32
    write(proc / "self/cgroup", "0::/job\n")
    write(cgroup / "job/memory.max", f"{4 * 2**30}\n")
    assert host.memory_gib(proc, cgroup) == 4


def test_memory_is_unknown_without_kernel_files(kernel):
    assert host.memory_gib(*kernel) is None


def test_clock_is_the_mean_of_the_cores(kernel):
    proc, _ = kernel
    write(proc / "cpuinfo", "cpu MHz\t\t: 2000.0\nflags : x\ncpu MHz\t\t: 3000.0\n")
    assert host.cpu_mhz(proc) == 2500.0
    write(proc / "cpuinfo", "BogoMIPS : 100\n")
    assert host.cpu_mhz(proc) is None


def test_other_jobs_that_train_score_or_drain_are_recognised_by_their_module(kernel):
    proc, _ = kernel
    write(proc / "10/cmdline", "python\0-m\0feedrate.train.worker\0--run\0x\0")
    write(proc / "11/cmdline", "grep\0feedrate.train.worker.py\0")
    write(proc / "12/cmdline", "")
    assert host.other_training_jobs(proc) == 1
    write(proc / "13/cmdline", "python\0-m\0feedrate.quality.worker\0--folder\0x\0")
    write(proc / "14/cmdline", "python\0-m\0feedrate.tuning.drain\0--run\0x\0")
    assert host.other_training_jobs(proc) == 3


def test_oom_kills_of_the_kernel(kernel):
    proc, _ = kernel
    assert host.oom_kills(proc) == 0
    write(proc / "vmstat", "pgfault 12\noom_kill 3\n")
    assert host.oom_kills(proc) == 3


def test_facts_of_this_host():
    facts = host.host_facts()
    assert 1 <= host.cores_granted() <= facts["cores_of_host"]
    assert facts["host_memory_gib"] > 0.1
    assert facts["packages"]["torch"]
    assert "optimum-habana" not in facts["packages"]
    assert host.machine_state()["load_1min"] >= 0
