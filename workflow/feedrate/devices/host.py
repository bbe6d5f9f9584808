"""What the host is and grants to this job, read from the kernel; needs no library."""

import contextlib
import fcntl
import importlib.metadata
import math
import os
import platform
import re
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from feedrate.devices.base import GIB

PACKAGES = (
    "feedrate", "torch", "transformers", "accelerate", "tokenizers", "safetensors", "numpy",
    "pillow", "pyarrow", "tensorboard", "msgspec", "optimum-habana", "optimum",
    "habana-torch-plugin", "habana-media-loader", "torchao", "torchvision", "nvidia-cudnn-cu12",
    "nvidia-nccl-cu12",
)  # fmt: skip
"""Packages whose version may change a measurement."""

TRAINING_MODULE = "feedrate.jobs.worker"
"""The module that training processes run."""

WORKERS = (TRAINING_MODULE, "feedrate.jobs.drain")
"""The modules that train, score and drain loaders, by which other jobs on the host are found."""

BF16_INSTRUCTIONS = ("amx_bf16", "avx512_bf16")
"""Flags of processors that multiply in bf16 themselves: by tiles, or by vectors."""

PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")


def cores_granted(proc: Path = PROC, cgroup: Path = CGROUP, *, affinity: int | None = None) -> int:
    """Cores that this job may use: the smaller of its affinity and its cgroup's CPU quota.

    `affinity` is the job's, where this process keeps to a part of it.
    """
    quota = min((_quota(folder) for folder in _folders("cpu", proc, cgroup)), default=math.inf)
    cores = len(os.sched_getaffinity(0)) if affinity is None else affinity
    return cores if math.isinf(quota) else max(1, min(cores, int(quota)))


def cores_of_host() -> int:
    """Logical cores of the host, granted or not."""
    return os.cpu_count() or 1


def memory_gib(proc: Path = PROC, cgroup: Path = CGROUP) -> float | None:
    """Memory that this job may use: the host's, or its cgroup's limit where that is smaller."""
    limits = [
        int(text)
        for folder in _folders("memory", proc, cgroup)
        for name in ("memory.max", "memory.limit_in_bytes")
        if (text := _read(folder / name).strip()).isdigit()
    ]
    for line in _read(proc / "meminfo").splitlines():
        if line.startswith("MemTotal:"):
            limits.append(int(line.split()[1]) * 1024)
    return min(limits) / GIB if limits else None


def memory_share_gib(ranks: int) -> float | None:
    """Memory that each of `ranks` processes on this host may use; None where it cannot be read."""
    total_gib = memory_gib()
    return None if total_gib is None else total_gib / ranks


def cpu_mhz(proc: Path = PROC) -> float | None:
    """Mean clock of the cores at this moment; None where the kernel does not tell."""
    clocks = [
        float(line.split(":")[1])
        for line in _read(proc / "cpuinfo").splitlines()
        if line.startswith("cpu MHz")
    ]
    return round(sum(clocks) / len(clocks), 1) if clocks else None


def bf16_instructions(proc: Path = PROC) -> list[str]:
    """Which of `BF16_INSTRUCTIONS` the processor has; none: it computes bf16 by way of fp32."""
    flags = next(
        (line for line in _read(proc / "cpuinfo").splitlines() if line.startswith("flags")), ""
    )
    return [name for name in BF16_INSTRUCTIONS if name in flags.split()]


def other_training_jobs(proc: Path = PROC) -> int:
    """Processes of feedrate that train, score or drain on this host, ours not yet among them."""
    return sum(
        any(word in WORKERS for word in _read(folder / "cmdline").split("\0"))
        for folder in proc.iterdir()
        if folder.name.isdigit()
    )


def oom_kills(proc: Path = PROC) -> int:
    """Processes that the kernel has killed for want of memory since it started."""
    for line in _read(proc / "vmstat").splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0


def machine_state() -> dict[str, Any]:
    """The machine before a run: what may disturb it."""
    load = os.getloadavg()
    return {
        "load_1min": round(load[0], 2),
        "load_5min": round(load[1], 2),
        "other_training_jobs": other_training_jobs(),
        "cpu_mhz": cpu_mhz(),
        "cpu_governor": _read(
            Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
        ).strip(),
    }


def packages() -> dict[str, str]:
    """Versions of those of `PACKAGES` that are installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def host_facts() -> dict[str, Any]:
    """What the `start` event tells of the host, but for the cores granted to the job."""
    return {
        "host": socket.gethostname(),
        "cores_of_host": cores_of_host(),
        "host_memory_gib": memory_gib(),
        "bf16_instructions": bf16_instructions(),
        "packages": packages(),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def _folders(controller: str, proc: Path, cgroup: Path) -> list[Path]:
    """Folders of this process's cgroup and of those above it, for one controller (v1 or v2)."""
    found: list[Path] = []
    for line in _read(proc / "self" / "cgroup").splitlines():
        _, names, inner = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        root = cgroup / controller if names else cgroup
        # In a container the path may be the host's: then only the root is there to be read.
        parts = Path(inner.lstrip("/")).parts
        found.extend(root.joinpath(*parts[:depth]) for depth in range(len(parts) + 1))
    return found


def _quota(folder: Path) -> float:
    """Cores that a cgroup's quota allows; infinite where it has none."""
    text = _read(folder / "cpu.max")  # v2: "<quota or max> <period>"
    if not text:
        text = f"{_read(folder / 'cpu.cfs_quota_us')} {_read(folder / 'cpu.cfs_period_us')}"
    found = re.fullmatch(r"(\d+)\s+(0*[1-9]\d*)", text.strip(), re.ASCII)
    return int(found[1]) / int(found[2]) if found else math.inf  # v1 says -1 for "no quota"


def _read(path: Path) -> str:
    """A kernel file's text; empty where it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


# One job at a time on a host that trains, scores or drains: two would measure each other.

POLL_S = 0.5


def lock_path() -> Path:
    """The lock file of this user on this host."""
    return Path(tempfile.gettempdir()) / f"feedrate-{os.getuid()}.lock"


@contextlib.contextmanager
def host_lock(
    path: Path, tell: Callable[[str], None], check: Callable[[], None] = lambda: None
) -> Iterator[int]:
    """Hold the lock; wait for it where another job has it, telling so once.

    `check` is called at every look and may raise to give up. Yields the file descriptor: a process
    that inherits it holds the lock too, so that it is free only when all of a job have ended.
    """
    # No link is followed: the folder is shared with other users.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        told = False
        while not _take(descriptor):
            if not told:
                holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
                tell(f"waiting: another job of feedrate runs on this host (pid {holder})")
                told = True
            check()
            time.sleep(POLL_S)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
