"""The Slurm client: jobs as Slurm's own commands report them; none if Slurm does not answer."""

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from feedrate.core import processes
from feedrate.core.errors import ExpectedError

JOB_ID = "SLURM_JOB_ID"
PREFIX = "feedrate"
"""`slurm-jobname-prefix` of the profiles; it identifies the suite's jobs."""

ANSWER_S = 30.0
"""A controller that has not answered after this time counts as absent."""

OVER = (
    *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY"),
    *("PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "REVOKED"),
)
"""States in which a job has ended, as far as Slurm knows (squeue(1), JOB STATE CODES)."""

OUT_OF_MEMORY = "OUT_OF_MEMORY"
KILLED_FOR_MEMORY = re.compile(
    r"slurmstepd\S*: error: .*(exceeded (job )?memory limit|oom.?kill event)", re.IGNORECASE
)
"""Slurm's line in a job's log when Slurm, or the kernel, kills a step for lack of memory."""

_NAME = re.compile(rf"{PREFIX}_[0-9a-f-]{{36}}")
_LOG = re.compile(r"^\s*StdOut=(.+)$", re.M)
_TAIL_BYTES = 20_000
_TIME = re.compile(r"(?:([0-9]+)-)?(?:([0-9]+):)?([0-9]+):([0-9]+)")
_FIELDS = ("%i", "%T", "%r", "%N", "%l", "%M", "%m", "%j", "%k", "%Z")
_SEPARATOR = "\x1f"
_AT_ONCE = 500
"""Maximum number of job numbers in one command line."""
_OPENING = re.compile(r"^s[a-z]+: (error: )?")
"""Slurm's commands begin each line of an error message with their name."""


class SlurmError(ExpectedError):
    """Slurm refused a request, with its own message, or did not answer in time."""


class Job(NamedTuple):
    """A job as Slurm knows it; the fields are in the order of `_FIELDS`."""

    id: str
    state: str
    """Slurm's full name for it: RUNNING, TIMEOUT, …"""
    reason: str = ""
    nodes: str = ""
    limit_min: float | None = None
    ran_min: float | None = None
    memory: str = ""
    """The memory requested on each node, as Slurm writes it: 64G."""
    name: str = ""
    rule: str = ""
    """The rule and wildcards that Snakemake gave as its comment."""
    folder: str = ""

    @property
    def is_over(self) -> bool:
        """Whether it has ended, as far as Slurm knows: a lost node's processes may still run."""
        return self.state in OVER


class Nodes(NamedTuple):
    """Equal nodes of a partition."""

    partition: str
    is_default: bool
    limit_min: float | None
    """The partition's time limit; None if it has none."""
    memory_mb: int
    cores: int
    number: int
    gres: str
    """As Slurm writes it: `gpu:h100:8(S:0-1)`, or `(null)`."""

    def has_gres(self, request: str) -> bool:
        """Whether each has `name`, `name:type`, `name:count` or `name:type:count`."""
        name, model, count = _gres(request)
        offers = map(_gres, re.sub(r"\([^)]*\)", "", self.gres).split(","))
        same = [n for kind, of, n in offers if kind == name and model in ("", of)]
        return not request or sum(same) >= count


def _gres(text: str) -> tuple[str, str, int]:
    """Name, type and number of `gpu:h100:8`; the type may be missing, and a number of 1."""
    name, *rest = text.split(":")
    number = int(rest.pop().rstrip("KMGT")) if rest and rest[-1].rstrip("KMGT").isdigit() else 1
    return name, ":".join(rest), number


def find(job_id: str) -> Job | None:
    """A job by its number, ended or not; None if Slurm does not answer or has forgotten it: without
    accounting, `MinJobAge` after its end (default: 300 s). If only a step was killed for lack of
    memory, Slurm may call the job FAILED; this function then calls it OUT_OF_MEMORY."""
    if not job_id:
        return None
    found = _queue("--jobs", job_id, "--states", "all")
    job = found[-1] if found else _from_accounting(job_id)
    if job and job.state == "FAILED" and KILLED_FOR_MEMORY.search(_end_of_log(job_id)):
        return job._replace(state=OUT_OF_MEMORY)
    return job


def own_jobs(folder: Path | str = ".") -> list[Job]:
    """This user's waiting and running jobs for the project in `folder`, from any driver."""
    here = os.path.realpath(folder)
    return [
        job
        for job in _queue("--user", str(os.getuid()))
        if _NAME.fullmatch(job.name) and os.path.realpath(job.folder) == here
    ]


def cancel(jobs: Iterable[Job]) -> None:
    """End these jobs. Raises SlurmError if Slurm refuses."""
    numbers = [job.id for job in jobs]
    for start in range(0, len(numbers), _AT_ONCE):
        try:
            ask("scancel", *numbers[start : start + _AT_ONCE])
        except SlurmError as error:
            raise SlurmError(f"scancel: {error}") from None


def is_installed() -> bool:
    """Whether this host has Slurm's commands."""
    return shutil.which("sbatch") is not None


def nodes() -> list[Nodes]:
    """All nodes of all partitions, up or down. Raises SlurmError."""
    rows = ask("sinfo", "--noheader", "--all", "--exact", "--format", "%P %l %m %c %D %G")
    return [
        Nodes(
            partition=partition.removesuffix("*"),
            is_default=partition.endswith("*"),
            limit_min=minutes(limit),
            memory_mb=int(memory),
            cores=int(cores),
            number=int(number),
            gres=gres,
        )
        for partition, limit, memory, cores, number, gres in map(str.split, rows.splitlines())
    ]


def _queue(*which: str) -> list[Job]:
    try:
        answer = ask("squeue", "--noheader", "--format", _SEPARATOR.join(_FIELDS), *which)
    except SlurmError:
        return []
    split = (line.split(_SEPARATOR) for line in answer.splitlines())
    rows = (row for row in split if len(row) == len(_FIELDS))
    return [
        Job(number, state, why, nodes, minutes(limit), minutes(ran), *others)
        for number, state, why, nodes, limit, ran, *others in rows
    ]


def _from_accounting(job_id: str) -> Job | None:
    """A job from the accounting, if the site has one."""
    words = ("--format", "State,NodeList,Timelimit,Elapsed,ReqMem", "--jobs", job_id)
    try:
        lines = ask("sacct", "--allocations", "--noheader", "--parsable2", *words).splitlines()
    except SlurmError:
        return None
    if not lines:
        return None
    state, nodes, limit, ran, memory = lines[-1].split("|")
    state = state.split()[0]  # "CANCELLED by 1000"
    return Job(job_id, state, "", nodes, minutes(limit), minutes(ran), memory)


def _end_of_log(job_id: str) -> str:
    """The last lines of a job's log; empty if it cannot be read."""
    try:
        log = _LOG.search(ask("scontrol", "show", "job", job_id))
        return end_of_file(Path(log[1])) if log else ""
    except (SlurmError, OSError):
        return ""


def end_of_file(path: Path) -> str:
    """The last lines of a log that may be long. Raises OSError."""
    with path.open("rb") as stream:
        stream.seek(0, os.SEEK_END)
        stream.seek(max(stream.tell() - _TAIL_BYTES, 0))
        return stream.read().decode(errors="replace")


def minutes(text: str) -> float | None:
    """Minutes of Slurm's `[days-]hours:minutes:seconds` or `minutes:seconds`; None for no limit."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    days, hours, minute, seconds = (int(part or 0) for part in found.groups())
    return days * 1440 + hours * 60 + minute + seconds / 60


def ask(*command: str) -> str:
    """The output of one of Slurm's commands. Raises SlurmError."""
    try:
        answer = processes.ask(command, ANSWER_S)
    except processes.NO_ANSWER as error:
        raise SlurmError(str(error)) from None
    if answer.returncode:
        lines = [_OPENING.sub("", line).strip() for line in answer.stderr.splitlines()]
        reasons = "; ".join(dict.fromkeys(filter(None, lines)))
        raise SlurmError(reasons or f"exit code {answer.returncode}")
    return answer.stdout
