"""The processes of a job: finding them all, stopping them all, their memory and CPU time."""

import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from feedrate.devices.base import GIB

PROC = Path("/proc")
GRACE_S = 5.0
"""From SIGTERM to SIGKILL."""

SAMPLE_EVERY_S = 0.5
SAMPLE_SHARE = 1 / 200
"""Sampling may take this share of one core at most; where it is dear it is done more seldom."""


def descendants(root: int, proc: Path = PROC) -> list[int]:
    """All living processes below `root`, whatever their group or session; zombies left out."""
    children: dict[int, list[int]] = defaultdict(list)
    for folder in proc.iterdir():
        if folder.name.isdigit():
            try:
                # "<pid> (<name, which may hold anything>) <state> <parent> ..."
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state not in "ZX":
                children[int(parent)].append(int(folder.name))
    return _below(root, children)


def stop_descendants(grace_s: float = GRACE_S) -> None:
    """Ask all processes below this one to end, and kill those that have not after `grace_s`."""
    _signal_all(descendants(os.getpid()), signal.SIGTERM)
    deadline_s = time.monotonic() + grace_s
    while descendants(os.getpid()) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    while alive := descendants(os.getpid()):  # a killed one may have started another meanwhile
        _signal_all(alive, signal.SIGKILL)
        time.sleep(0.02)


class MemorySampler:
    """Peak of the memory of all processes below this one together.

    Shared pages count once (PSS): forked data-loader workers share most of theirs with their rank.
    """

    def __init__(self) -> None:
        self.peak_gib: float | None = None
        self._due_s = 0.0

    def sample(self) -> None:
        """Take a sample, where one is due."""
        start_s = time.monotonic()
        if start_s < self._due_s:
            return
        sizes = [size for pid in _family(os.getpid()) if (size := read_pss_gib(pid)) is not None]
        if sizes:
            self.peak_gib = max(self.peak_gib or 0.0, sum(sizes))
        took_s = time.monotonic() - start_s
        self._due_s = start_s + max(SAMPLE_EVERY_S, took_s / SAMPLE_SHARE)


def read_pss_gib(pid: int, proc: Path = PROC) -> float | None:
    """Proportional set size of a process; its resident set where the kernel hides that."""
    for name, key in (("smaps_rollup", "Pss:"), ("status", "VmRSS:")):
        try:
            lines = (proc / str(pid) / name).read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            if line.startswith(key):
                return int(line.split()[1]) * 1024 / GIB
    return None


def cpu_time_s(root: int, proc: Path = PROC) -> float:
    """CPU seconds that `root` and all living processes below it have taken, in all threads."""
    ticks = 0
    for pid in (root, *_family(root)):
        try:
            fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])  # utime and stime, proc(5)
    return ticks / os.sysconf("SC_CLK_TCK")


def _family(root: int) -> list[int]:
    """Processes that main threads below `root` started: cheap, where the kernel lists children."""
    found: list[int] = []
    queue = [root]
    while queue:
        pid = queue.pop()
        try:
            listed = (PROC / str(pid) / "task" / str(pid) / "children").read_text().split()
        except FileNotFoundError:
            if pid == root:
                return descendants(root)
            continue
        except OSError:
            continue
        below = [int(child) for child in listed]
        found += below
        queue += below
    return found


def _below(root: int, children: dict[int, list[int]]) -> list[int]:
    found: list[int] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _signal_all(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
