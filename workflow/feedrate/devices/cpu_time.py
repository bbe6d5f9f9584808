"""CPU time of this process and its descendants, and their time without a core."""

from contextlib import suppress
from pathlib import Path

import psutil

from feedrate.core.processes import listed_descendants


def core_wait_s() -> float | None:
    """Seconds in which living threads of this process and its descendants were ready to run and no
    core was free (schedstat, docs.kernel.org/scheduler/sched-stats.html); None where the kernel
    does not count them."""
    process, waited_ns, known = psutil.Process(), 0, False
    for one in (process, *listed_descendants(process)):
        for file in Path("/proc", str(one.pid), "task").glob("*/schedstat"):
            with suppress(OSError):  # the thread has ended
                waited_ns, known = waited_ns + int(file.read_text().split()[1]), True
    return waited_ns / 1e9 if known else None


def cpu_time_s(root: int | None = None) -> float:
    """CPU seconds that `root` (default: this process) and its living descendants have used."""
    process, total_s = psutil.Process(root), 0.0
    for one in (process, *listed_descendants(process)):
        with suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total_s += times.user + times.system
    return total_s
