"""The outcome of a run (status and cause), and the run's folder (see docs/architecture.md)."""

import contextlib
import json
import os
import re
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feedrate.config.spec import RunSpec
from feedrate.core import paths, variables
from feedrate.core.errors import ExpectedError
from feedrate.core.files import write_json
from feedrate.core.paths import LOG_NAME, OUTCOME_NAME, SPEC_NAME, TRAINER_NAME
from feedrate.core.slurm import KILLED_FOR_MEMORY
from feedrate.jobs.events import Error, EventTail, RankEvents, Result
from feedrate.jobs.run_lock import Identity
from feedrate.jobs.worker import (
    DISK_FULL,
    LOADER_GONE,
    OUT_OF_MEMORY,
    SHARED_MEMORY_FULL,
    first_sentence,
)

ATTEMPT = "attempt-"
CHECKPOINTS = "checkpoint-*"
FINISHED = ".finished.json"
FINISHED_LOG = ".finished.log"
LOGS = (SPEC_NAME, LOG_NAME, OUTCOME_NAME, paths.ANY_EVENTS, paths.TRACE_NAME)
STALE = (FINISHED, FINISHED_LOG, *LOGS, ".*.part")

_NODE_FAILURE = re.compile(
    r"srun: error: (?:Node failure|Unable to (?:create|confirm))"
    r"|(?:slurmstepd|srun): error: .* DUE TO NODE FAILURE|^Batch job submission failed: Node fail"
)
_TORCHRUN = re.compile(r"rank\s*:\s*(\d+) .*\n.*exitcode\s*:\s*(-?\d+)")
_MPIRUN = re.compile(r"process rank (\d+) .* exited on signal (\d+)")
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
    stopped_after_min: float | None = None
    """The time limit that the job exceeded; None if it ended by itself."""
    oom_kills: int = 0
    """Processes on the host that the kernel killed for lack of memory during the job."""
    disk_full: bool = False
    tail: Sequence[str] = ()
    """The last lines of the output."""
    peak_gib: float | None = None
    """Peak memory of all processes together; None if it was never read."""


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
    if has_results(spec, ranks):
        ended = not end.exit_code and all(events.end and events.end.ok for events in ranks)
        return Result("ok", "" if ended else f"after its results were written: {cause}")
    if end.disk_full:
        raise MachineFault(f"the disk that holds {run} is full")
    lines = (line for line in end.tail[-40:] if not SHARED_MEMORY_FULL.search(line))
    if full := next(filter(DISK_FULL.search, lines), None):
        raise MachineFault(f"a disk is full: {first_sentence(full)}")
    if lost := next((line for line in end.tail if _NODE_FAILURE.search(line)), None):
        raise MachineFault(first_sentence(lost))
    return Result("out_of_memory" if _out_of_memory(end, errors) else "failed", cause)


def has_results(spec: RunSpec, ranks: Sequence[RankEvents]) -> bool:
    """Whether every rank wrote its window, and rank 0 of a training job all its results."""
    if not all(events.window for events in ranks):
        return False
    evaluated = any(one.moment == "after" for one in ranks[0].evaluations)
    trained = ranks[0].trainer is not None and (evaluated or not spec.protocol.evaluate)
    return trained or spec.task == "inference"


def _cause(end: ProcessExit, errors: Sequence[Error]) -> str:
    if end.stopped_after_min is not None:
        return f"stopped after {end.stopped_after_min:g} min (protocol.timeout_min)"
    memory = next((e for e in errors if e.out_of_memory), None)
    # A rank that lost its peer reports only a consequence: another rank, or a signal, is the cause.
    own = memory or next((e for e in errors if not _PEER_GONE.search(e.message)), None)
    killed = _killed(end)
    if own is None and killed is not None:
        rank, number = killed
        reason = ""
        if number == signal.SIGKILL and _killed_for_memory(end):
            reason = "; the kernel killed it for lack of memory"
        elif number == signal.SIGKILL:
            reason = "; from outside: the kernel reports no lack of memory"
        name = signal.strsignal(number) or "unknown"
        return f"rank {rank} was killed by signal {number} ({name}{reason})"
    if own := own or next(iter(errors), None):
        return ": ".join(filter(None, (own.type, own.message)))
    last = next((line for line in reversed(end.tail) if line.strip()), "no output")
    code = end.exit_code
    return f"exit code {code} without an error event; last line: {first_sentence(last)}"


def _out_of_memory(end: ProcessExit, errors: Sequence[Error]) -> bool:
    if any(e.out_of_memory for e in errors):
        return True
    number = (_killed(end) or (0, 0))[1]
    by_kernel = number == signal.SIGKILL or any(LOADER_GONE.search(e.message) for e in errors)
    if by_kernel and _killed_for_memory(end):
        return True
    # Words alone do not count where the end has another cause: libraries print them and go on.
    ended = end.stopped_after_min is None and number in (0, signal.SIGABRT, signal.SIGKILL)
    return ended and not errors and any(OUT_OF_MEMORY.search(line) for line in end.tail)


def _killed_for_memory(end: ProcessExit) -> bool:
    """Whether the kernel killed a process for lack of memory, here or on another node of the job,
    which only Slurm's lines tell."""
    return end.oom_kills > 0 or any(KILLED_FOR_MEMORY.search(line) for line in end.tail)


def _killed(end: ProcessExit) -> tuple[int, int] | None:
    """Rank and signal, if a signal ended the job.

    torchrun lists the first failure last. A rank that lost its peer may end before that peer is
    seen to be dead; the ranks that torchrun itself stops get SIGTERM.
    """
    if end.exit_code < 0:
        return 0, -end.exit_code
    text = "\n".join(end.tail)
    if killed := _MPIRUN.search(text):
        return int(killed[1]), int(killed[2])
    others, _, first = text.rpartition("Root Cause")
    root, rest = (
        [(int(rank), -int(code)) for rank, code in _TORCHRUN.findall(part) if int(code) < 0]
        for part in (first, others)
    )
    return next(iter(root + [one for one in rest if one[1] != signal.SIGTERM]), None)


def open_attempt(run: Path, token: str, spec: object, *, resume: bool) -> Path:
    """Remove the files of earlier attempts from `run`, but for checkpoints if `resume`; return the
    folder of this one, with the spec."""
    attempt = run / f"{ATTEMPT}{token}"
    kept = _checkpoints(run) if resume else []
    for pattern in STALE:
        for stale in run.glob(pattern):
            stale.unlink(missing_ok=True)
    (attempt / TRAINER_NAME).mkdir(parents=True)
    for checkpoint in kept:
        checkpoint.rename(attempt / TRAINER_NAME / checkpoint.name)
    for old in [*_attempts(run), run / TRAINER_NAME]:
        if old != attempt:
            shutil.rmtree(old, ignore_errors=True)
    write_json(attempt / SPEC_NAME, spec)
    return attempt


def _attempts(run: Path) -> list[Path]:
    """The folders of attempts without an outcome, oldest first."""
    found: list[tuple[float, Path]] = []
    for path in run.glob(f"{ATTEMPT}*"):
        with contextlib.suppress(FileNotFoundError):
            found.append((path.stat().st_mtime, path))
    return [path for _, path in sorted(found)]


def _checkpoints(run: Path) -> list[Path]:
    """Checkpoints of the newest attempt that has any."""
    for folder in [*(path / TRAINER_NAME for path in reversed(_attempts(run))), run / TRAINER_NAME]:
        if found := sorted(folder.glob(CHECKPOINTS)):
            return found
    return []


def keep_log(attempt: Path) -> Path:
    """Move the log of an attempt without an outcome to where readers look for it."""
    log = attempt / LOG_NAME
    return log.replace(attempt.parent / LOG_NAME) if log.exists() else log


def publish(attempt: Path, outcome: dict[str, Any], token: str) -> None:
    """Move the attempt's files into the run's folder, and write the outcome last."""
    run = attempt.parent
    names = sorted(path.name for path in attempt.iterdir())
    for name in names:
        (attempt / name).replace(run / name)
    attempt.rmdir()
    commit(run, outcome, token, names)


def publish_without_results(run: Path, spec: object, outcome: dict[str, Any], token: str) -> None:
    """Write an outcome without events and weights; the log and checkpoints to resume from stay."""
    for stale in [*run.glob(paths.ANY_EVENTS), run / OUTCOME_NAME]:
        stale.unlink(missing_ok=True)
    trainer = run / TRAINER_NAME
    for stale in set(trainer.glob("*")) - set(trainer.glob(CHECKPOINTS)):
        if stale.is_dir():
            shutil.rmtree(stale, ignore_errors=True)
        else:
            stale.unlink(missing_ok=True)
    for attempt in _attempts(run):
        keep_log(attempt)
        shutil.rmtree(attempt, ignore_errors=True)
    write_json(run / SPEC_NAME, spec)
    commit(run, outcome, token, [SPEC_NAME])


def commit(run: Path, outcome: dict[str, Any], token: str, names: list[str]) -> None:
    """Write the outcome of the job with this token, whose files `names` are in place."""
    (run / FINISHED_LOG).unlink(missing_ok=True)
    if (run / LOG_NAME).exists():
        _link(run / LOG_NAME, run / FINISHED_LOG)
    write_json(run / FINISHED, {"token": token, "files": names, "outcome": outcome})
    write_json(run / OUTCOME_NAME, outcome)


def adopt(run: Path, wanted: Identity, seen: set[str]) -> dict[str, Any] | None:
    """Restore the outcome of a finished job of this run, and return it; None if there is none. It
    must come from a job in `seen`, which this job saw at work, or be newer than this driver, or in
    no record yet. Any other result is being made again on purpose."""
    try:
        found = json.loads((run / FINISHED).read_text(encoding="utf-8"))
        outcome: dict[str, Any] = found["outcome"]
        made = Identity(
            spec=outcome["spec_digest"],
            source=outcome["source_digest"],
            data=outcome["data_digest"],
            inputs=outcome.get("inputs_digest", ""),
            attempt=outcome["attempt"],
        )
        files, token = found["files"], found["token"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    complete = all((run / name).exists() for name in files if name != LOG_NAME)
    if not made.serves(wanted) or not complete:
        return None
    if token not in seen and not _is_wanted(run):
        return None
    outcome["attempt"] = wanted.attempt
    restore(run, outcome)
    return outcome


def restore(run: Path, outcome: dict[str, Any]) -> None:
    """Restore the files that Snakemake removed when it started the same job again."""
    if not (run / LOG_NAME).exists() and (run / FINISHED_LOG).exists():
        _link(run / FINISHED_LOG, run / LOG_NAME)
    write_json(run / OUTCOME_NAME, outcome)


def _is_wanted(run: Path) -> bool:
    """Whether the result is newer than this driver or, unless runs are forced, than its record:
    then its driver died before it was parsed."""
    since = os.environ.get(variables.DRIVER_SINCE)
    try:
        finished_s = (run / FINISHED).stat().st_mtime
        if since is not None and finished_s >= float(since):
            return True
        if os.environ.get(variables.FORCED):
            return False
        return (run / paths.RECORD_NAME).stat().st_mtime < finished_s
    except FileNotFoundError:
        return True


def _link(path: Path, other: Path) -> None:
    """Give a file a second name, or a copy if the file system has no links."""
    try:
        os.link(path, other)
    except OSError:
        shutil.copyfile(path, other)
