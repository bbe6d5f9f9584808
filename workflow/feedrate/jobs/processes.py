"""Starting a job's processes, watching them, and leaving none behind."""

import errno
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO

from feedrate.core import variables
from feedrate.core.errors import Masker
from feedrate.core.paths import LOG_NAME, events_name
from feedrate.core.processes import (
    PROC,
    adopt_orphans,
    descendants,
    die_with_parent,
    family,
    supervisor,
)
from feedrate.devices.host import GIB, oom_kills
from feedrate.jobs.events import EventTail
from feedrate.jobs.outcome import Ending
from feedrate.jobs.progress import ProgressLine

# The processes of a job: stopping them all, and the memory they take.

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


# Carries the job's output into its log, without secrets.

TAIL_LINES = 400


class LogPump:
    """Copies a pipe into a file, line by line, in a thread of its own.

    A full disk does not stop the reading, for then the job would hang on its own output: it sets
    `disk_full`, and the last lines stay in `tail`.
    """

    def __init__(self, source: IO[bytes], path: Path, mask: Masker) -> None:
        """Start to copy `source` to `path`."""
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.disk_full = False
        self._source, self._path, self._mask = source, path, mask
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self, timeout_s: float = 5.0) -> None:
        """Wait until all that was written has been copied."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        with self._path.open("wb", buffering=0) as log:
            for raw in self._source:
                line = self._mask(raw.decode(errors="replace"))
                self.tail.append(line.rstrip("\n"))
                self._write(log, line.encode())

    def _write(self, log: IO[bytes], line: bytes) -> None:
        try:
            log.write(line)
        except OSError as error:
            self.disk_full |= error.errno in (errno.ENOSPC, errno.EDQUOT)


TICK_S = 0.5
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """The job is to end without an outcome; `exit_code` is the supervisor's."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Watch:
    """What may end a job from outside: a signal to the supervisor, or the driver's death."""

    def __init__(self) -> None:
        """Take over the signals; they are noted, and acted upon by `check`."""
        self._mind: Callable[[], None] = lambda: None
        self._signal = 0
        self._driver = _open_driver(os.environ.get(variables.DRIVER_PID, ""))
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, self._note)

    def check(self) -> None:
        """Raise Interrupted where the job is to end, or what `minding` raises."""
        if self._signal:
            name = signal.Signals(self._signal).name
            raise Interrupted(f"stopped by {name}", 128 + self._signal)
        if self._driver is not None and select.select([self._driver], [], [], 0)[0]:
            raise Interrupted(
                f"the workflow's driver ({os.environ[variables.DRIVER_PID]}) has died", 1
            )
        self._mind()

    @contextmanager
    def minding(self, duty: Callable[[], None]) -> Iterator[None]:
        """Call `duty` at every `check` inside the block."""
        self._mind = duty
        try:
            yield
        finally:
            self._mind = lambda: None

    def sleep(self, until: int, seconds: float) -> None:
        """Sleep, or less: until the process behind descriptor `until` ends or `check` has news."""
        waiting = [until, self._wake_read, *([] if self._driver is None else [self._driver])]
        select.select(waiting, [], [], seconds)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._signal = self._signal or number


def run_processes(
    attempt: Path,
    command: list[str],
    environment: dict[str, str],
    *,
    limit_min: float,
    lock: int,
    watch: Watch,
    progress: ProgressLine,
) -> tuple[Ending, float | None]:
    """Run `command` to its end: how it ended, and the peak of all its processes' memory in GiB.

    After `limit_min` they are stopped. `lock` is inherited by the processes. Whatever happens, none
    of them is alive afterwards. Raises Interrupted where `watch` says so.
    """
    adopt_orphans()
    killed_before = oom_kills()
    process, output = _start(command, environment, lock)
    pump = LogPump(output, attempt / LOG_NAME, Masker())
    memory = MemorySampler()
    tail = EventTail(attempt / events_name(0))

    def look() -> None:
        memory.sample()
        progress.update(tail.read())

    try:
        ended = _wait(process, limit_min * 60, watch, look)
    finally:
        stop_descendants()
        exit_code = process.wait()
        pump.finish()
        _reap()
    if exit_code:  # a cluster signals all processes of a job at once: that is no crash of theirs
        watch.check()
    ending = Ending(
        exit_code=exit_code,
        stopped_after_min=None if ended else limit_min,
        oom_kills=oom_kills() - killed_before,
        disk_full=pump.disk_full,
        tail=list(pump.tail),
    )
    return ending, memory.peak_gib


def _start(
    command: list[str], environment: dict[str, str], lock: int
) -> tuple["subprocess.Popen[bytes]", IO[bytes]]:
    """Start `command` in a session of its own, dying with us; the process and its output."""
    process = subprocess.Popen(
        command,
        env={**environment, variables.SUPERVISOR_PID: supervisor()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=[lock],
        preexec_fn=die_with_parent,  # no thread of ours runs yet
    )
    assert process.stdout is not None
    return process, process.stdout


def _wait(
    process: "subprocess.Popen[bytes]", limit_s: float, watch: Watch, look: Callable[[], None]
) -> bool:
    """Wait for the process to end, looking after it; False where `limit_s` passed first."""
    deadline_s = time.monotonic() + limit_s
    descriptor = os.pidfd_open(process.pid)
    try:
        while process.poll() is None:
            watch.check()
            if time.monotonic() >= deadline_s:
                return False
            look()
            watch.sleep(descriptor, TICK_S)
    finally:
        os.close(descriptor)
    return True


def _open_driver(text: str) -> int | None:
    """A descriptor that tells of the driver's death; None where it is not a process here."""
    pid, _, host = text.partition("@")
    if not pid.isdigit() or (host and host != socket.gethostname()):
        return None
    try:
        return os.pidfd_open(int(pid))
    except OSError:  # on another host, as under a cluster's scheduler
        return None


def _reap() -> None:
    """Take leave of orphans that were adopted."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
