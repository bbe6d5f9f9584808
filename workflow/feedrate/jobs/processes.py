"""The processes of a job: start them, watch them, and leave none behind."""

import errno
import os
import re
import select
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO

import psutil

from feedrate.config.spec import RunSpec
from feedrate.config.values import cell_text, duration_text, rate_text
from feedrate.core import processes, variables
from feedrate.core.errors import ExpectedError, print_error
from feedrate.core.paths import LOG_NAME, events_name
from feedrate.core.processes import descendants
from feedrate.core.secrets import Masker
from feedrate.core.variables import DriverCall
from feedrate.devices.host import GIB, oom_kills
from feedrate.devices.launch import Launch
from feedrate.jobs.events import Ceiling, Evaluation, Event, EventTail, Stages, Step
from feedrate.jobs.outcome import MachineFault, ProcessExit

TICK_S = 0.5
GRACE_S = 5.0  # time from SIGTERM to SIGKILL
KILLED_S = 60.0  # time after SIGKILL within which a process ends, unless it hangs in the kernel
FIRST_PROGRESS_S, PROGRESS_EVERY_S = 5.0, 60.0
"""When the first line of a job is due, and the shortest time to the next: most jobs print one."""
SAMPLE_EVERY_S = 0.5
SAMPLE_SHARE = 1 / 200  # of one core for sampling memory; expensive samples are taken less often
TAIL_LINES = 400
BAR = re.compile(r"\d%\|.*\[|\d(it|s)/(s|it)\]")  # a progress bar of tqdm
OUTPUT_S = 5.0  # time in which the last output is copied, unless something else holds the pipe


class Interrupted(ExpectedError):
    """The job must end without an outcome; `exit_code` is the supervisor's."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class StopRequests:
    """Requests to end a job from outside: a signal to the supervisor, or the driver's death."""

    def __init__(self, call: DriverCall | None) -> None:
        """Take over the signals. Raises Interrupted if the driver has died already."""
        self._signal = 0
        self._call = call
        self._driver: int | None = None  # a descriptor that shows the driver's death
        if call and call.is_local and call.host == socket.gethostname():  # else jobs outlive it
            try:
                self._driver = os.pidfd_open(call.pid)
            except ProcessLookupError:
                raise Interrupted(f"the workflow's driver ({call}) has died", 1) from None
        for number in processes.stop_signals():
            signal.signal(number, self._note)

    def check(self) -> None:
        """Raise Interrupted if the job must end."""
        if self._signal:
            name = signal.Signals(self._signal).name
            raise Interrupted(f"stopped by {name}", 128 + self._signal)
        if self._driver is not None and select.select([self._driver], [], [], 0)[0]:
            raise Interrupted(f"the workflow's driver ({self._call}) has died", 1)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._signal = self._signal or number


class ProgressLine:
    """Prints on stderr, seldom, how long the job still takes; when quiet, nothing."""

    def __init__(self, spec: RunSpec, *, quiet: bool) -> None:
        self._spec, self._quiet = spec, quiet
        self._label = f"{spec.device} {cell_text(spec.cell)}, repeat {spec.repeat}"
        self._step, self._samples, self._time_s = 0, 0, 0.0
        self._rounds_s, self._scoring_s = 0.0, 0.0
        if spec.task == "training":
            alone = 0 if spec.settings.train.strategy == "fsdp" else 1 + (spec.count > 1)
            self._rounds_s = (2 + alone) * spec.protocol.ceiling_s
        self._started_s = time.monotonic()
        self._due_s = self._started_s + FIRST_PROGRESS_S

    def update(self, events: Iterable[Event]) -> None:
        """Take in rank 0's new events, and print a line if one is due and its rate is known."""
        for event in events:
            if isinstance(event, Step) and not event.warmup:
                self._step = event.step
                self._samples += (event.samples or 0) * self._spec.count
                self._time_s += event.step_s
            elif isinstance(event, Evaluation):  # the second one takes as long as the first
                self._scoring_s = (event.seconds or 0.0) if event.moment == "before" else 0.0
            elif isinstance(event, Ceiling):
                self._rounds_s = max(0.0, self._rounds_s - event.wall_s)
            elif isinstance(event, Stages):  # after the last round
                self._rounds_s = 0.0
        now_s = time.monotonic()
        if now_s < self._due_s or not self._time_s:
            return
        self._due_s = now_s + max(PROGRESS_EVERY_S, now_s - self._started_s)
        steps = self._spec.protocol.steps
        timed = self._step - self._spec.protocol.warmup_steps
        remaining_s = self._time_s / timed * (steps - self._step) + self._scoring_s + self._rounds_s
        if remaining_s >= FIRST_PROGRESS_S:
            rate, duration = self._samples / self._time_s, duration_text(remaining_s)
            state = f"step {self._step}/{steps}, {rate_text(rate)} samples/s"
            self.report(f"{state}, about {duration} left of this run")

    def report(self, text: str) -> None:
        """Print a line about this job."""
        if not self._quiet:
            print_error(f"{self._label}: {text}")


def run_processes(
    place: Path,
    launch: Launch,
    *,
    limit_min: float,
    locks: Sequence[int],
    requests: StopRequests,
    progress: ProgressLine,
) -> ProcessExit:
    """Run a command, which inherits the descriptors `locks`, to its end or for `limit_min`, and
    leave no process alive. Raises Interrupted."""
    earlier_oom_kills = oom_kills()
    processes.adopt_orphans()
    log = (place / LOG_NAME).open("wb", buffering=0)  # on a full disk the job must not start
    supervisor = {variables.SUPERVISOR_PID: f"{os.getpid()}@{socket.gethostname()}"}
    process = subprocess.Popen(
        launch.command,
        env=launch.environment | supervisor,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C reaches only us: we stop the job in order
        pass_fds=locks,
        preexec_fn=processes.die_with_parent,  # no thread of ours runs yet
    )
    assert process.stdout is not None
    pump = LogPump(process.stdout, log, Masker(launch.environment))
    memory, tail = MemorySampler(), EventTail(place / events_name(0))
    deadline_s = time.monotonic() + limit_min * 60
    try:
        while process.poll() is None and time.monotonic() < deadline_s:
            requests.check()
            memory.sample()
            progress.update(tail.read())
            with suppress(subprocess.TimeoutExpired):
                process.wait(TICK_S)
        in_time = process.poll() is not None
    finally:
        stop_descendants()
        exit_code = process.wait()
        pump.join(OUTPUT_S)
        with suppress(ChildProcessError):  # of orphans that were adopted
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    if exit_code:  # a cluster signals all processes of a job at once: they did not crash
        requests.check()
    return ProcessExit(
        exit_code=exit_code,
        stopped_after_min=None if in_time else limit_min,
        oom_kills=oom_kills() - earlier_oom_kills,
        disk_full=pump.disk_full,
        tail=list(pump.tail),
        peak_gib=memory.peak_gib,
    )


def stop_descendants(grace_s: float = GRACE_S) -> None:
    """Ask all processes below this one to end, and kill those that have not after `grace_s`."""
    for process in descendants():
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    deadline_s = time.monotonic() + grace_s
    while descendants() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    deadline_s = time.monotonic() + KILLED_S
    while survivors := descendants():  # a process may start another before it is killed
        for process in survivors:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        if time.monotonic() >= deadline_s:
            pids = ", ".join(str(process.pid) for process in survivors)
            raise MachineFault(f"SIGKILL does not end process {pids}: it hangs in a driver")
        time.sleep(0.02)


class MemorySampler:
    """Peak memory of all processes below this one; pages that they share count once (PSS)."""

    def __init__(self) -> None:
        self.peak_gib: float | None = None
        self._due_s = 0.0

    def sample(self) -> None:
        """Take a sample if one is due."""
        start_s = time.monotonic()
        if start_s < self._due_s:
            return
        sizes = [memory_gib(process) for process in processes.listed_descendants(psutil.Process())]
        if any(sizes):
            self.peak_gib = max(self.peak_gib or 0.0, sum(size or 0.0 for size in sizes))
        took_s = time.monotonic() - start_s
        self._due_s = start_s + max(SAMPLE_EVERY_S, took_s / SAMPLE_SHARE)


def memory_gib(process: psutil.Process) -> float | None:
    """PSS of a process, or its resident set if the kernel hides that; None if it has ended."""
    with suppress(psutil.NoSuchProcess):
        try:
            return float(process.memory_full_info().pss / GIB)
        except (psutil.AccessDenied, AttributeError):
            return float(process.memory_info().rss / GIB)
    return None


class LogPump(threading.Thread):
    """Copies a pipe into a file, line by line without secrets, and reads on if the disk is full."""

    def __init__(self, source: IO[bytes], log: IO[bytes], mask: Masker) -> None:
        """Start to copy `source` to `log`, which is closed at the end."""
        super().__init__(daemon=True)
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.disk_full = False
        self._source, self._log, self._mask = source, log, mask
        self.start()

    def run(self) -> None:
        """Copy all output."""
        with self._log as log:
            for raw in self._source:
                line = self._mask(raw.decode(errors="replace"))
                # A bar is printed often: it would push an early error out of the tail.
                self.tail.extend(part for part in line.splitlines() if not BAR.search(part))
                try:
                    log.write(line.encode())
                except OSError as error:  # without a reader, the job would hang on its output
                    self.disk_full |= error.errno in (errno.ENOSPC, errno.EDQUOT)
