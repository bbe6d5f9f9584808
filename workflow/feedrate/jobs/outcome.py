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
    """The result of the job in `run`; complete results stay valid if a process crashes afterwards.
    Raises MachineFault."""
    ranks = [RankEvents() for _ in range(spec.count)]
    for rank, events in enumerate(ranks):
        for event in EventTail(run / paths.events_name(rank)).read():
            events.add(event)
    errors = [events.error for events in ranks if events.error]
    if fault := next((e for e in errors if e.infrastructure), None):
        raise MachineFault(fault.message)
    cause = _cause(end, errors)
    evaluated = any(evaluation.moment == "after" for evaluation in ranks[0].evaluations)
    trained = ranks[0].trainer is not None and (evaluated or not spec.protocol.evaluate)
    if all(events.window for events in ranks) and (trained or spec.task == "inference"):
        ended = not end.exit_code and all(events.end and events.end.ok for events in ranks)
        return Result("ok", "" if ended else f"after its results were written: {cause}")
    if end.disk_full:
        raise MachineFault(f"the disk that holds {run} is full")
    lines = (line for line in end.tail[-40:] if not worker.SHARED_MEMORY_FULL.search(line))
    if full := next(filter(worker.DISK_FULL.search, lines), None):
        raise MachineFault(f"a disk is full: {first_sentence(full)}")
    if lost := next((line for line in end.tail if scheduler.NODE_FAILURE.search(line)), None):
        raise MachineFault(first_sentence(lost))
    return Result("out_of_memory" if _out_of_memory(end, errors) else "failed", cause)


def _cause(end: ProcessExit, errors: Sequence[Error]) -> str:
    if end.stopped_after_min is not None:
        return f"stopped after {end.stopped_after_min:g} min (protocol.timeout_min)"
    memory = next((e for e in errors if e.out_of_memory), None)
    # A rank that lost its peer reports only a consequence: another rank, or a signal, is the cause.
    own = memory or next((e for e in errors if not _PEER_GONE.search(e.message)), None)
    if own is None and (killed := _killed(end)):
        rank, number = killed
        reason = ""
        if number == signal.SIGKILL and _killed_for_memory(end):
            reason = _NO_MEMORY
        elif number == signal.SIGKILL:
            reason = "; from outside: the kernel reports no lack of memory"
        name = signal.strsignal(number) or "unknown"
        return f"rank {rank} was killed by signal {number} ({name}{reason})"
    if own := own or next(iter(errors), None):
        lost = worker.LOADER_GONE.search(own.message) and _killed_for_memory(end)
        reason = _NO_MEMORY if lost else ""
        return ": ".join(filter(None, (own.type, own.message))) + reason
    lines = [line for line in reversed(end.tail) if line.strip()] or ["no output"]
    last = next(filter(_ERROR.search, lines), lines[0])
    what = "error" if _ERROR.search(last) else "line"
    code = end.exit_code
    return f"exit code {code} without an error event; last {what}: {first_sentence(last)}"


def _out_of_memory(end: ProcessExit, errors: Sequence[Error]) -> bool:
    if any(e.out_of_memory for e in errors):
        return True
    killed = _killed(end)
    number = killed[1] if killed else 0
    lost_loader = any(worker.LOADER_GONE.search(e.message) for e in errors)
    if (number == signal.SIGKILL or lost_loader) and _killed_for_memory(end):
        return True
    # Words alone do not count where the end has another cause: libraries print them and go on.
    ended = end.stopped_after_min is None and number in (0, signal.SIGABRT)
    return ended and not errors and any(worker.OUT_OF_MEMORY.search(line) for line in end.tail)


def _killed_for_memory(end: ProcessExit) -> bool:
    """Whether the kernel killed a process for lack of memory, here or on another node of the job,
    which only the scheduler's lines tell."""
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
    others, _, first = text.rpartition("Root Cause")
    for part, ignored in ((first, 0), (others, signal.SIGTERM)):
        for rank, code in _TORCHRUN.findall(part):
            if int(code) < 0 and -int(code) != ignored:
                return int(rank), -int(code)
    return None
