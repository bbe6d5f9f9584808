"""The outcome of a run: status and cause, from the job's end or from the ends of earlier tries."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from feedrate.config.spec import RunSpec
from feedrate.core import slurm
from feedrate.core.errors import ExpectedError, Masker
from feedrate.core.files import digest_file, digest_value
from feedrate.core.paths import OUTCOME_NAME, SPEC_NAME, events_name
from feedrate.jobs.events import End, Error, Evaluation, Event, EventTail, Trainer, Window
from feedrate.jobs.run_lock import Holder, Identity, LockEntry
from feedrate.jobs.worker import DISK_FULL, OUT_OF_MEMORY, first_sentence

SCHEMA = 1
TIMEOUT = "TIMEOUT"
NEAR_MIN = 1.0
"""A job that is stopped so shortly before its limit is stopped for it: a site may warn ahead."""

_TORCHRUN = re.compile(r"rank\s*:\s*(\d+) .*\n.*exitcode\s*:\s*(-?\d+)")
_MPIRUN = re.compile(r"process rank (\d+) .* exited on signal (\d+)")
_NODE_LOST = re.compile(
    r"srun: error: (Node failure|Unable to (create|confirm))"
    r"|slurmstepd: error: .* DUE TO NODE FAILURE"
)
_KILLED_LOADER = re.compile(r"DataLoader worker.*killed by signal: Killed")
_PEER_GONE = re.compile(
    r"closed by peer|reset by peer|remote process exited|NCCL|Broken pipe|Gloo|hcl|Timed out",
    re.IGNORECASE,
)

Status = Literal["ok", "out_of_memory", "failed"]


class Result(NamedTuple):
    """The essence of an outcome; the `cause` of an ok job is a remark, mostly empty."""

    status: Status
    cause: str


class MachineFault(ExpectedError):
    """The machine failed, not the cell; the job deserves another try."""


@dataclass(frozen=True, kw_only=True)
class ProcessExit:
    """How the processes of a job ended."""

    exit_code: int
    stopped_after_min: float | None = None
    """The time that a job may take, where it took longer."""
    oom_kills: int = 0
    """Processes that the kernel killed meanwhile for lack of memory, on the whole host."""
    disk_full: bool = False
    tail: Sequence[str] = field(default_factory=list)
    """The last lines of the output."""
    peak_gib: float | None = None
    """Peak memory of all processes together; None where it was never read."""


def classify_exit(spec: RunSpec, run: Path, end: ProcessExit) -> Result:
    """The result of the job in `run`, from its events, its exit and the end of its output.

    Complete results stay valid: a process that crashes after writing them takes none back. Raises
    MachineFault where the machine is to blame.
    """
    ranks = [EventTail(run / events_name(rank)).read() for rank in range(spec.count)]
    errors = [event for events in ranks for event in events if isinstance(event, Error)]
    if fault := next((e for e in errors if e.infrastructure), None):
        raise MachineFault(fault.message)
    if end.disk_full or any(DISK_FULL.search(line) for line in end.tail[-40:]):
        raise MachineFault(f"the disk that holds {run} is full")
    cause = _cause(end, errors)
    if has_results(spec, ranks):
        ended = all(any(isinstance(e, End) and e.ok for e in events) for events in ranks)
        if ended and not end.exit_code:
            return Result("ok", "")
        return Result("ok", f"after its results were written: {cause}")
    if lost := next((line for line in end.tail if _NODE_LOST.search(line)), None):
        raise MachineFault(first_sentence(lost))
    return Result("out_of_memory" if _out_of_memory(end, errors) else "failed", cause)


def has_results(spec: RunSpec, ranks: Sequence[Sequence[Event]]) -> bool:
    """Whether every rank wrote its window, and rank 0 of a training job all its results."""
    if not all(any(isinstance(e, Window) for e in events) for events in ranks):
        return False
    if spec.task == "inference":
        return True
    evaluations = sum(isinstance(e, Evaluation) for e in ranks[0])
    trained = any(isinstance(e, Trainer) for e in ranks[0])
    return trained and evaluations >= (2 if spec.protocol.evaluate else 0)


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
        if number == signal.SIGKILL and end.oom_kills:
            reason = "; the kernel killed it for lack of memory"
        elif number == signal.SIGKILL:
            reason = "; from outside: the kernel reports no lack of memory"
        name = signal.strsignal(number) or "unknown"
        return f"rank {rank} was killed by signal {number} ({name}{reason})"
    if own := own or next(iter(errors), None):
        return f"{own.type}: {own.message}"
    last = next((line for line in reversed(end.tail) if line.strip()), "no output")
    code = end.exit_code
    return f"exit code {code} without an error event; last line: {first_sentence(last)}"


def _out_of_memory(end: ProcessExit, errors: Sequence[Error]) -> bool:
    if any(e.out_of_memory for e in errors):
        return True
    if not errors and any(OUT_OF_MEMORY.search(line) for line in end.tail):
        return True
    killed = _killed(end)
    by_kernel = killed is not None and killed[1] == signal.SIGKILL
    by_kernel = by_kernel or any(_KILLED_LOADER.search(e.message) for e in errors)
    return by_kernel and end.oom_kills > 0


def _killed(end: ProcessExit) -> tuple[int, int] | None:
    """Rank and signal, where a signal ended the job."""
    if end.exit_code < 0:
        return 0, -end.exit_code
    text = "\n".join(end.tail)
    if found := _MPIRUN.search(text):
        return int(found[1]), int(found[2])
    # torchrun first lists the ranks that it stopped, then the one that failed on its own.
    found = _TORCHRUN.search(text.rpartition("Root Cause")[2])
    return (int(found[1]), -int(found[2])) if found and int(found[2]) < 0 else None


def result_of_earlier_tries(
    run: Path, earlier: Iterable[LockEntry], me: Holder, since: str
) -> Result | None:
    """The result that the earlier tries make certain; None where another try may do better.

    Most ends that Slurm brings about deserve another try: a lost node, a preemption, a time limit
    where the next one is longer. Too little memory is a result, and so is the longest time limit.

    `earlier` are the locks of `run` before that of `me`, newest first; those count that the driver
    which began at `since` made for the same identity in another Slurm job.
    """
    tries = {
        entry.holder.job: entry
        for entry in reversed(list(earlier))
        if entry.holder
        and entry.holder.job not in ("", me.job)
        and entry.holder.since == since
        and entry.holder.identity.serves(me.identity)
    }
    ends = [_slurm_end(number, entry) for number, entry in tries.items()]
    if not ends:
        return None
    last = ends[-1]
    if last.state == slurm.OUT_OF_MEMORY:
        asked = f" of {last.memory}" if last.memory else ""
        return Result(
            "out_of_memory",
            f"Slurm killed the job for lack of host memory: its limit{asked} on {last.nodes} was "
            "too low; to try it with more, raise job.memory_gib of the device, or mem_mb in the "
            f"profile, and call again with --forcerun {run / OUTCOME_NAME}",
        )
    if last.state == TIMEOUT:
        limits = [end.limit_min for end in ends if end.state == TIMEOUT and end.limit_min]
        return _out_of_time(limits, slurm.find(me.job))
    return None


def _slurm_end(number: str, entry: LockEntry) -> slurm.Job:
    """How a try ended: by the reason that it left itself, else as Slurm remembers."""
    with contextlib.suppress(ValueError):
        state, limit = entry.reason
        return slurm.Job(id=number, state=state, limit_min=float(limit))
    return slurm.find(number) or slurm.Job(id=number, state="")


def _out_of_time(limits: list[float], this: slurm.Job | None) -> Result | None:
    """The result where the limit was hit; None where this try's own is longer, or may be."""
    longest = max(limits, default=0.0)
    if this is None and len(limits) < 2:
        return None
    if this is not None and (this.limit_min is None or this.limit_min > longest):
        return None
    listed = " and then ".join(f"{limit:g} min" for limit in limits)
    return Result(
        "failed",
        f"Slurm stopped the job at its time limit, {listed}: raise protocol.timeout_min, or the "
        "rule's runtime in the profile",
    )


def slurm_stop_reason() -> str:
    """Why Slurm stops this job, as words for the next try; empty where Slurm is not the one."""
    job = slurm.find(os.environ.get(slurm.JOB_ID, ""))
    if job is None:
        return ""
    ran_min = job.ran_min or 0.0
    if job.limit_min and (job.reason == "TimeLimit" or ran_min >= job.limit_min - NEAR_MIN):
        return f"{TIMEOUT} {job.limit_min:g}"
    return job.state if job.is_over else ""


def describe_stop(reason: str) -> str:
    """The words of `slurm_stop_reason` for people."""
    match reason.split():
        case [state, limit] if state == TIMEOUT:
            return f"Slurm's time limit of {limit} min"
        case [state]:
            return f"Slurm calls the job {state}"
        case _:
            return ""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a job beside its spec."""

    data: Path
    """The dataset's manifest.json."""
    out: Path
    """The run's folder."""
    source_digest: str = ""
    """Digest of the measured code."""
    attempt: int = 1
    """Number of the attempt, from 1; a run that failed counts up."""
    try_: int | None = None
    """Snakemake's count of its tries, from 1; in the last one a machine fault is an outcome."""
    resume: bool = False
    keep_weights: bool = False
    quiet: bool = False


def identity(spec: RunSpec, options: Options) -> Identity:
    """The identity of the result that a job with these options makes."""
    return Identity(
        spec=digest_value(msgspec.to_builtins(spec)),
        source=options.source_digest,
        data=digest_file(options.data) if options.data.is_file() else "",
        attempt=options.attempt,
    )


def facts(made: Identity, options: Options) -> dict[str, Any]:
    """The keys of every outcome that do not depend on the result."""
    command = ["python", "-m", "feedrate", "train", "--spec", str(options.out / SPEC_NAME)]
    command += ["--data", str(options.data), "--out", str(options.out)]
    return {
        "schema": SCHEMA,
        "attempt": made.attempt,
        "command": Masker()(shlex.join(command)),
        "commit": read_commit(),
        "source_digest": made.source,
        "data_digest": made.data,
        "spec_digest": made.spec,
    }


def outcome_without_processes(made: Identity, options: Options, result: Result) -> dict[str, Any]:
    """The outcome of a job whose processes did not start, or did not end by themselves.

    Where it failed, the machine is to blame: nothing else fails without processes.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {
        **facts(made, options),
        "status": result.status,
        "infrastructure": result.status == "failed",
        "cause": Masker()(result.cause),
        "exit_code": 1,
        "started_at": now,
        "ended_at": now,
    }


def read_commit() -> str:
    """The project's commit, with `-dirty` where files differ; empty outside a repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        answer = subprocess.run(
            command,
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()
