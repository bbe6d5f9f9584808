"""outcome.json: the supervisor's word on a run."""

import argparse
import re
import shlex
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from feedrate.config.spec import RunSpec
from feedrate.core.errors import Masker
from feedrate.core.files import digest_file, digest_value
from feedrate.core.paths import SPEC_NAME, events_name
from feedrate.jobs.events import RawEvent, read_raw_events
from feedrate.jobs.failure import DISK_FULL, OUT_OF_MEMORY, first_sentence
from feedrate.jobs.run_lock import Identity

# How a job ended, from its events, its exit and the end of its output.

Status = Literal["ok", "out_of_memory", "failed"]

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


class MachineFault(Exception):
    """The machine failed, not the cell; the job deserves another try."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How the job's processes ended."""

    exit_code: int
    stopped_after_min: float | None = None
    """The time that a job may take, where it took longer."""
    oom_kills: int = 0
    """Processes that the kernel killed for want of memory meanwhile, on the whole host."""
    disk_full: bool = False
    tail: Sequence[str] = field(default_factory=list)
    """The last lines of the output."""


@dataclass(frozen=True)
class Verdict:
    """The supervisor's word; `cause` of an ok job is a note, mostly empty."""

    status: Status
    cause: str


def judge(spec: RunSpec, run: Path, ending: Ending) -> Verdict:
    """Say how the job in `run` ended. Raises MachineFault where the machine is to blame.

    Results that are out stand: a process that crashes on its way out takes none of them back.
    """
    ranks = [read_raw_events(run / events_name(rank)) for rank in range(spec.count)]
    errors = [event for events in ranks for event in _named(events, "error")]
    if fault := next((e for e in errors if e.get("infrastructure")), None):
        raise MachineFault(str(fault["message"]))
    if ending.disk_full or any(DISK_FULL.search(line) for line in ending.tail[-40:]):
        raise MachineFault(f"the disk that holds {run} is full")
    cause = _cause(ending, errors)
    if results_are_out(spec, ranks):
        ended = all(any(e.get("ok") for e in _named(events, "end")) for events in ranks)
        if ended and not ending.exit_code:
            return Verdict("ok", "")
        return Verdict("ok", f"after its results were written: {cause}")
    if lost := next((line for line in ending.tail if _NODE_LOST.search(line)), None):
        raise MachineFault(first_sentence(lost))
    if _out_of_memory(ending, errors):
        return Verdict("out_of_memory", cause)
    return Verdict("failed", cause)


def results_are_out(spec: RunSpec, ranks: Sequence[Sequence[RawEvent]]) -> bool:
    """Whether every rank wrote its window and rank 0 all that comes of training."""
    if not all(_named(events, "window") for events in ranks):
        return False
    if spec.task == "inference":
        return True
    evaluations = 2 if spec.protocol.evaluate else 0
    return bool(_named(ranks[0], "trainer")) and len(_named(ranks[0], "evaluation")) >= evaluations


def _cause(ending: Ending, errors: Sequence[RawEvent]) -> str:
    if ending.stopped_after_min is not None:
        return f"stopped after {ending.stopped_after_min:g} min (protocol.timeout_min)"
    memory = next((e for e in errors if e.get("out_of_memory")), None)
    own = memory or next((e for e in errors if not _PEER_GONE.search(str(e["message"]))), None)
    killed = _killed(ending)
    if own is None and killed is not None:
        rank, number = killed
        hint = ""
        if number == signal.SIGKILL:
            hint = (
                "the kernel killed it for want of memory"
                if ending.oom_kills
                else "from outside: the kernel reports no want of memory"
            )
        name = signal.strsignal(number) or "unknown"
        return f"rank {rank} was killed by signal {number} ({name}{hint and '; ' + hint})"
    if own := own or next(iter(errors), None):
        return f"{own['type']}: {own['message']}"
    last = next((line for line in reversed(ending.tail) if line.strip()), "no output")
    return f"exit code {ending.exit_code} without an error event; last line: {first_sentence(last)}"


def _out_of_memory(ending: Ending, errors: Sequence[RawEvent]) -> bool:
    if any(e.get("out_of_memory") for e in errors):
        return True
    if not errors and any(OUT_OF_MEMORY.search(line) for line in ending.tail):
        return True
    killed = _killed(ending)
    by_kernel = killed is not None and killed[1] == signal.SIGKILL
    by_kernel = by_kernel or any(_KILLED_LOADER.search(str(e["message"])) for e in errors)
    return by_kernel and ending.oom_kills > 0


def _killed(ending: Ending) -> tuple[int, int] | None:
    """Rank and signal, where a signal ended the job."""
    if ending.exit_code < 0:
        return 0, -ending.exit_code
    text = "\n".join(ending.tail)
    if found := _MPIRUN.search(text):
        return int(found[1]), int(found[2])
    # torchrun lists the ranks that it stopped itself first, then the one that failed of itself.
    found = _TORCHRUN.search(text.rpartition("Root Cause")[2])
    return (int(found[1]), -int(found[2])) if found and int(found[2]) < 0 else None


def _named(events: Sequence[RawEvent], name: str) -> list[RawEvent]:
    return [event for event in events if event["event"] == name]


SCHEMA = 1


def identity(spec: RunSpec, options: argparse.Namespace) -> Identity:
    """What the job makes."""
    data: Path = options.data
    return Identity(
        spec=digest_value(msgspec.to_builtins(spec)),
        source=options.source_digest,
        data=digest_file(data) if data.is_file() else "",
        attempt=options.attempt,
    )


def facts(made: Identity, options: argparse.Namespace) -> dict[str, Any]:
    """What every outcome says of the job, whatever became of it."""
    command = ["python", "-m", "feedrate.jobs.supervisor", "--spec", str(options.out / SPEC_NAME)]
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


def without_run(
    made: Identity,
    options: argparse.Namespace,
    cause: str,
    *,
    status: Status = "failed",
    infrastructure: bool = True,
) -> dict[str, Any]:
    """The outcome of a job that came to no end of its own."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {
        **facts(made, options),
        "status": status,
        "infrastructure": infrastructure,
        "cause": Masker()(cause),
        "exit_code": 1,
        "started_at": now,
        "ended_at": now,
    }


def read_commit() -> str:
    """The project's commit, `-dirty` after it where files differ; empty outside a repository."""
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()
