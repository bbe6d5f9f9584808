"""The result of a job: its status and cause, from how its processes ended and what they wrote."""

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from feedrate.config.spec import RunSpec
from feedrate.core import paths, scheduler
from feedrate.core.errors import ExpectedError
from feedrate.jobs import worker
from feedrate.jobs.events import Error, EventTail, RankEvents, Result
from feedrate.jobs.worker import first_sentence

_TORCHRUN = re.compile(r"rank\s*:\s*(\d+) .*\n.*exitcode\s*:\s*(-?\d+)")
_MPIRUN = re.compile(r"process rank (\d+) .* exited on signal (\d+)")
_ERROR = re.compile(r"\w(Error|Exception)\b|\b(error|fatal|failed|abort(ed)?)\b", re.IGNORECASE)
"""In an output without an error event, a line that is more likely the cause than the last one."""
_NO_MEMORY = "; the kernel killed it for lack of memory"
_PEER_GONE = re.compile(
    r"closed by peer|reset by peer|remote process exited|NCCL|Broken pipe|Gloo|hcl|Timed out",
    re.IGNORECASE,
)


class MachineFault(ExpectedError):
    """The machine failed, not the cell: another try may succeed."""


@dataclass(frozen=True, kw_only=True)
class ProcessExit:
    """How the processes of a job ended."""

    exit_code: int
    stopped_after_min: float | None = None  # the time limit that it exceeded
    oom_kills: int = 0  # processes of the job's cgroup that the kernel killed for lack of memory
    disk_full: bool = False
    tail: Sequence[str] = ()  # the last lines of the output
    peak_gib: float | None = None  # memory of all processes together; None if it was never read


def classify_exit(spec: RunSpec, run: Path, end: ProcessExit) -> Result:
    """The result of the job in `run`, also if a process crashed later. Raises MachineFault."""
    ranks = [RankEvents() for _ in range(spec.count)]
    for rank, events in enumerate(ranks):
        for event in EventTail(run / paths.events_name(rank)).read():
            events.add(event)
    errors = [events.error for events in ranks if events.error]
    for error in errors:
        if error.infrastructure:
            raise MachineFault(error.message)
    cause = _cause(end, errors)
    evaluated = any(evaluation.moment == "after" for evaluation in ranks[0].evaluations)
    trained = ranks[0].trainer is not None and (evaluated or not spec.protocol.evaluate)
    if all(events.window for events in ranks) and (trained or spec.task == "inference"):
        if end.exit_code or not all(events.end and events.end.ok for events in ranks):
            return Result("ok", f"after its results were written: {cause}")
        return Result("ok", "")
    if end.disk_full:
        raise MachineFault(f"the disk that holds {run} is full")
    for line in end.tail[-40:]:
        if worker.DISK_FULL.search(line) and not worker.SHARED_MEMORY_FULL.search(line):
            raise MachineFault(f"a disk is full: {first_sentence(line)}")
    for line in end.tail:
        if scheduler.NODE_FAILURE.search(line):
            raise MachineFault(first_sentence(line))
    return Result("out_of_memory" if _out_of_memory(end, errors) else "failed", cause)


def _cause(end: ProcessExit, errors: Sequence[Error]) -> str:
    if end.stopped_after_min is not None:
        return f"stopped after {end.stopped_after_min:g} min (protocol.timeout_min)"
    # A rank that lost its peer reports only a consequence: another rank, or a signal, is the cause.
    causes = [error for error in errors if error.out_of_memory]
    causes += [error for error in errors if not _PEER_GONE.search(error.message)]
    killed = _killed(end)
    if killed and not causes:
        rank, number = killed
        reason = ""
        if number == signal.SIGKILL:
            reason = "; from outside: the kernel reports no lack of memory"
            if _killed_for_memory(end):
                reason = _NO_MEMORY
        name = signal.strsignal(number) or "unknown"
        return f"rank {rank} was killed by signal {number} ({name}{reason})"
    if errors:
        error = (causes or errors)[0]
        reason = ""
        if worker.LOADER_GONE.search(error.message) and _killed_for_memory(end):
            reason = _NO_MEMORY
        return ": ".join(filter(None, (error.type, error.message))) + reason
    lines = [line for line in reversed(end.tail) if line.strip()] or ["no output"]
    error_lines = [line for line in lines if _ERROR.search(line)]
    label, line = ("error", error_lines[0]) if error_lines else ("line", lines[0])
    code = end.exit_code
    return f"exit code {code} without an error event; last {label}: {first_sentence(line)}"


def _out_of_memory(end: ProcessExit, errors: Sequence[Error]) -> bool:
    if any(error.out_of_memory for error in errors):
        return True
    killed = _killed(end)
    number = killed[1] if killed else 0
    lost_loader = any(worker.LOADER_GONE.search(error.message) for error in errors)
    if (number == signal.SIGKILL or lost_loader) and _killed_for_memory(end):
        return True
    # Words alone do not count where the end has another cause: libraries print them and go on.
    if errors or end.stopped_after_min is not None or number not in (0, signal.SIGABRT):
        return False
    return any(worker.OUT_OF_MEMORY.search(line) for line in end.tail)


def _killed_for_memory(end: ProcessExit) -> bool:
    """Whether the kernel killed a process for lack of memory, here or (Slurm says) elsewhere."""
    return end.oom_kills > 0 or any(scheduler.KILLED_FOR_MEMORY.search(line) for line in end.tail)


def _killed(end: ProcessExit) -> tuple[int, int] | None:
    """Rank and signal, if a signal ended the job."""
    if end.exit_code < 0:
        return 0, -end.exit_code
    text = "\n".join(end.tail)
    if killed := _MPIRUN.search(text):
        return int(killed[1]), int(killed[2])
    # torchrun lists the first failure last. A rank that lost its peer may end before that peer is
    # seen to be dead; the ranks that torchrun itself stops get SIGTERM.
    later_failures, _, first_failure = text.rpartition("Root Cause")
    for failures, ignored in ((first_failure, 0), (later_failures, signal.SIGTERM)):
        for rank, code in _TORCHRUN.findall(failures):
            if int(code) < 0 and -int(code) != ignored:
                return int(rank), -int(code)
    return None
