"""The CPU time of this job and of other programs on its host."""

import contextlib
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from feedrate.core.processes import listed_descendants
from feedrate.devices import host

TICKS = os.sysconf("SC_CLK_TCK")  # of /proc/stat in a second


def host_load() -> dict[str, float]:
    """`host` of the `machine` event (docs/run-files.md), s since the host's start, as far as the
    kernel counts them: proc_stat(5), schedstat and PSI."""
    load: dict[str, float] = {}

    def wanted_s(times_s: list[float]) -> float:
        return sum(times_s) - times_s[3] - times_s[4]  # all but the two idle times

    # Eight times, user to steal. The times of guests follow, which user includes.
    lines = re.findall(r"^cpu(\d*) +((?:\d+ +){7}\d+)", host.kernel_text(host.PROC / "stat"), re.M)
    times_s = {number: [int(word) / TICKS for word in words.split()] for number, words in lines}
    if "" in times_s:  # the line of all cores
        of_host, own = times_s[""], {str(number) for number in os.sched_getaffinity(0)}
        of_cores = [times for number, times in times_s.items() if number in own]
        children = os.times()  # workers of earlier epochs have ended
        load = {
            "cpu_wanted_s": wanted_s(of_host),
            "cpu_stolen_s": of_host[-1],
            "cores_s": sum(map(sum, of_cores)),
            "cores_busy_s": sum(wanted_s(core) - core[-1] for core in of_cores),
            "job_cpu_s": cpu_time_s() + children.children_user + children.children_system,
        }
        waited_s = core_wait_s()
        if waited_s is not None:
            load["job_waited_s"] = waited_s
    for resource in ("cpu", "memory", "io"):
        pressure = host.kernel_text(host.PROC / "pressure" / resource)
        total_us = re.search(r"^some .*total=(\d+)", pressure)
        if total_us:
            load[f"{resource}_waited_s"] = int(total_us[1]) / 1e6
    return load


def core_wait_s() -> float | None:
    """Seconds in which living threads of this process and its descendants waited for a core
    (schedstat, docs.kernel.org/scheduler/sched-stats.html); None where they are not counted."""
    root, waits_ns = psutil.Process(), []
    for process in (root, *listed_descendants(root)):
        for file in Path("/proc", str(process.pid), "task").glob("*/schedstat"):
            with contextlib.suppress(OSError):  # the thread has ended
                waits_ns.append(int(file.read_text().split()[1]))
    return sum(waits_ns) / 1e9 if waits_ns else None


def cpu_time_s(root: int | None = None) -> float:
    """CPU seconds of `root` (default: this process) and its living descendants."""
    parent, total_s = psutil.Process(root), 0.0
    for process in (parent, *listed_descendants(parent)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total_s += times.user + times.system
    return total_s


Use = tuple[str, float]
"""The name of a process and its CPU time, s. Its arguments stay unread: they may hold secrets."""


def cpu_by_process(root: int) -> dict[int, Use]:
    """The use of each process of the host that is neither `root` nor below it, by its number."""
    parents: dict[int, int] = {}
    uses: dict[int, Use] = {}
    for process in psutil.process_iter(["ppid", "name", "cpu_times"]):
        parents[process.pid], times = process.info["ppid"], process.info["cpu_times"]
        if times:
            name = process.info["name"].partition("/")[0]  # kworker/0:1 has other names later
            uses[process.pid] = name, times.user + times.system
    own, children = set[int](), {root}
    while children:
        own |= children
        children = {pid for pid, parent in parents.items() if parent in children} - own
    return {pid: use for pid, use in uses.items() if pid not in own}


NAMED = 3  # programs that are named
LEAST_SHARE = 0.02  # share of the busiest program's CPU time below which a program is not named


def busiest(before: Mapping[int, Use], after: Mapping[int, Use]) -> list[tuple[str, int, float]]:
    """The programs that used most CPU time between two answers of `cpu_by_process`: name, number
    of the process (0: several), and seconds. Those that have ended meanwhile are unknown."""
    used_s: dict[str, list[tuple[int, float]]] = {}
    for pid, (name, end_s) in after.items():
        _, start_s = before.get(pid, (name, 0.0))
        if end_s > start_s:
            used_s.setdefault(name, []).append((pid, end_s - start_s))
    programs = []
    for name, uses in used_s.items():
        pid = uses[0][0] if len(uses) == 1 else 0
        programs.append((name, pid, round(sum(time_s for _, time_s in uses), 2)))
    programs.sort(key=lambda program: -program[2])
    return [entry for entry in programs[:NAMED] if entry[2] >= LEAST_SHARE * programs[0][2]]


WATCHED_S = 1.0
BUSY = 0.25  # share of its cores' time from which other programs may disturb a job


class Watch:
    """What other programs use of this process's cores, from now on."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()
        self._load, self._uses = host_load(), cpu_by_process(os.getpid())

    def busy(self) -> str:
        """A sentence without a full stop if they use much of the cores; else empty. This waits
        until they were watched for a second."""
        if "cores_s" not in self._load:  # the kernel does not count it
            return ""
        time.sleep(max(0.0, self._start_s + WATCHED_S - time.monotonic()))
        now, parts = host_load(), ("cores_s", "cores_busy_s", "job_cpu_s")
        cores_s, busy_s, own_s = (now[part] - self._load[part] for part in parts)
        share = (busy_s - own_s) / cores_s if cores_s else 0.0
        if share < BUSY:
            return ""
        cores = len(os.sched_getaffinity(0))
        subject = {1: "the core is", 2: "both cores are"}.get(cores, f"the {cores} cores are")
        programs = busiest(self._uses, cpu_by_process(os.getpid()))
        names = ", ".join(f"{name} {used_s / cores_s:.0%}" for name, _, used_s in programs)
        sentence = f"{subject} {share:.0%} busy with other programs"
        return f"{sentence} ({names})" if names else sentence
