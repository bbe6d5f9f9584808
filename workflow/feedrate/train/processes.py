"""The processes of a job: stopping them all, and the memory they take."""

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from feedrate.devices.base import GIB
from feedrate.devices.family import PROC, descendants, family

GRACE_S = 5.0
"""From SIGTERM to SIGKILL."""

SAMPLE_EVERY_S = 0.5
SAMPLE_SHARE = 1 / 200
"""Sampling may take this share of one core at most; where it is dear it is done more seldom."""


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
    """Peak of the memory of this process and all below it, on this host, together.

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
        sizes = [size for pid in family(os.getpid()) if (size := read_pss_gib(pid)) is not None]
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


def _signal_all(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
