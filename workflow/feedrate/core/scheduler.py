"""The scheduler of a cluster, which is Slurm: its jobs, what it refuses, and the words in which it
and its executor report. Besides, the profiles and the launcher `srun` are Slurm's, and
`flow/resources.py` names its resources. Functions raise SchedulerError unless they say what they do
without an answer."""

import math
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from feedrate.core import processes
from feedrate.core.errors import ExpectedError
from feedrate.core.files import end_of_file

NAME = "Slurm"
EXECUTOR = "slurm"  # Snakemake's, which sends jobs to it
INSIDE = "srun …"  # how a user starts a command on a node
PREFIX = "feedrate"  # `slurm-jobname-prefix` of the profiles: it identifies the suite's jobs
ANSWER_S = 30.0  # a controller that has not answered then counts as absent
OUT_OF_MEMORY = "OUT_OF_MEMORY"
TIMEOUT = "TIMEOUT"
ENDS = {
    "BOOT_FAIL": "its node did not start",
    "CANCELLED": "it was cancelled",
    "COMPLETED": "",
    "DEADLINE": "its deadline passed",
    "FAILED": "",
    "NODE_FAIL": "its node was lost",
    OUT_OF_MEMORY: "it used more host memory than it requested",
    "PREEMPTED": "it had to make way for another job",
    TIMEOUT: "it reached its time limit",
}
"""States in which a job has ended (squeue(1), JOB STATE CODES), and why, where they tell."""
KILLED_FOR_MEMORY = re.compile(
    r"slurmstepd\S*: error: .*(exceeded (job )?memory limit|oom.?kill event)", re.IGNORECASE
)
"""Slurm's line in a job's log when Slurm, or the kernel, kills a step for lack of memory."""
NODE_FAILURE = re.compile(
    r"srun: error: (?:Node failure|Unable to (?:create|confirm))"
    r"|(?:slurmstepd|srun): error: .* DUE TO NODE FAILURE|^Batch job submission failed: Node fail"
)
"""Slurm's line in a job's log when a node is lost."""
SAID_ELSEWHERE = (
    "No SLURM account given",
    "No account was given",
    "Guessed SLURM account",
    "Unable to guess SLURM account",
)
"""Warnings of the executor that need not be shown: if an account is needed, sbatch says so."""
OPTIONS = {
    "slurm_partition": "--partition",
    "slurm_account": "--account",
    "qos": "--qos",
    "constraint": "--constraint",
    "nodes": "--nodes",
    "tasks": "--ntasks",
    "cpus_per_task": "--cpus-per-task",
    "mem_mb": "--mem",
    "runtime": "--time",
    "gres": "--gres",
}
"""The options of sbatch with which the executor requests a job's resources."""
GRES = re.compile(r"\w+(:[\w.]+)?(:\d+[TGM]?)?")  # the form of `gres` that the executor takes
NEAR_MIN = 1.0  # a job that is stopped so close to its limit has reached it: sites may signal early
_TIME = re.compile(r"(?:([0-9]+)-)?(?:([0-9]+):)?([0-9]+):([0-9]+)")
_FIELDS = ("%i", "%T", "%r", "%N", "%l", "%M", "%m", "%j", "%k", "%Z")
_SEPARATOR = "\x1f"
_SUBMITTED = re.compile(r"Job (\d+) has been submitted with SLURM jobid (\S+)")
_REFUSED = re.compile(r"SLURM sbatch failed\. The error message was '(.*?)'\.\s*\n", re.DOTALL)
_NOT_SENT = re.compile(r"Job submission failed with exception: (.+)")
_ENDED = re.compile(r"SLURM-job '([^']+)' failed.*?SLURM status is: '(\w+)'", re.DOTALL)


class SchedulerError(ExpectedError):
    """Slurm refused a request, with its own message, or did not answer in time."""


class Job(NamedTuple):
    """A job as Slurm knows it; the fields are in the order of `_FIELDS`."""

    id: str
    state: str  # RUNNING, TIMEOUT, …
    reason: str = ""
    nodes: str = ""
    limit_min: float | None = None
    ran_min: float | None = None
    memory: str = ""  # requested on each node, as 64G
    name: str = ""
    rule: str = ""  # with its wildcards: Snakemake's comment
    folder: str = ""

    @property
    def is_over(self) -> bool:
        """Whether it has ended, as far as Slurm knows: a lost node's processes may still run."""
        return self.state in ENDS


class Partition(NamedTuple):
    """A partition; `nodes` is like `2 with 192 cores, 2048000 MB and gpu:h100:8`."""

    name: str
    is_default: bool
    is_up: bool  # with all of its nodes
    limit_min: float | None
    nodes: str


def this_job(environment: Mapping[str, str] = os.environ) -> str:
    """The number of the job in which a process with this environment runs; empty outside jobs."""
    return environment.get("SLURM_JOB_ID", "")


def find(job_id: str) -> Job | None:
    """A job by its number, ended or not; None if Slurm does not answer or has forgotten it: without
    accounting, `MinJobAge` after its end (default: 300 s). If only a step was killed for lack of
    memory, Slurm may call the job FAILED; here it is then OUT_OF_MEMORY."""
    if not job_id:
        return None
    jobs = _queue("--jobs", job_id, "--states", "all") or _from_accounting(job_id)
    job = jobs[-1] if jobs else None
    if job and job.state == "FAILED":
        with suppress(SchedulerError, OSError):
            log = Path(_field("StdOut", "job", job_id, pattern=".+"))
            if KILLED_FOR_MEMORY.search(end_of_file(log)):
                return job._replace(state=OUT_OF_MEMORY)
    return job


def why_ended(job: Job) -> str:
    """Why a job ended, without a full stop; empty if it has not, or if Slurm does not know."""
    reason = ENDS.get(job.state, "")
    if job.state == TIMEOUT and job.limit_min:
        reason += f" of {job.limit_min:g} min"
    elif job.state == OUT_OF_MEMORY and job.memory:
        reason += f" ({job.memory})"
    return f"Slurm job {job.id} ended as {job.state}: {reason}" if reason else ""


def why_stopped() -> str:
    """Why Slurm stops the job of this process, as a phrase; empty if it does not."""
    job = find(this_job())
    if job is None:
        return ""
    near_end = job.limit_min and (job.ran_min or 0.0) >= job.limit_min - NEAR_MIN
    if job.limit_min and (job.reason == "TimeLimit" or near_end):
        return f"Slurm's time limit of {job.limit_min:g} min"
    return f"Slurm calls the job {job.state}" if job.is_over else ""


def own_jobs(folder: Path | str = ".") -> list[Job]:
    """This user's waiting and running jobs for the project in `folder`, from any driver."""
    jobs = _queue("--user", str(os.getuid()))
    ours = [job for job in jobs if re.fullmatch(rf"{PREFIX}_[0-9a-f-]{{36}}", job.name)]
    return [job for job in ours if os.path.realpath(job.folder) == os.path.realpath(folder)]


def cancel(jobs: Iterable[Job]) -> None:
    """End these jobs. Raises SchedulerError if Slurm refuses."""
    numbers = [job.id for job in jobs]
    if numbers:
        _ask("scancel", *numbers)


def why_absent() -> str:
    """Why this host cannot send jobs; empty if it has Slurm's commands."""
    return "" if shutil.which("sbatch") else "no sbatch here"


def submitted(message: str) -> tuple[int, str] | None:
    """Snakemake's number of a job and Slurm's, if the executor's message says that it was sent."""
    match = _SUBMITTED.match(message)
    return (int(match[1]), match[2]) if match else None


def why_not_sent(message: str) -> str:
    """Why a job was not sent, without a full stop, if the executor's message says that it was not;
    else empty."""
    if match := _REFUSED.search(message):
        return f"Slurm refused the job: {'; '.join(match[1].splitlines())}"
    match = _NOT_SENT.search(message)
    return f"the job could not be submitted to Slurm: {match[1]}" if match else ""


def how_ended(message: str, logs: Iterable[str]) -> str:
    """How a job ended, without a full stop, by the executor's message and the ends of the job's
    logs; empty if the message does not say it."""
    match = _ENDED.search(message)
    if match is None:
        return ""
    number, state = match.groups()
    if any(KILLED_FOR_MEMORY.search(log) for log in logs):
        state = OUT_OF_MEMORY
    return why_ended(Job(number, state)) or f"Slurm job {number} ended as {state}"


def problem(resources: Mapping[str, Any], partitions: Sequence[Partition]) -> str:
    """Why Slurm would never run a job that requests these resources, as Snakemake names them; empty
    if it would, maybe later."""
    gres = str(resources.get("gres") or "")
    if gres and not GRES.fullmatch(gres):
        return (
            f"gres {gres!r} is not allowed; expected NAME:COUNT or NAME:TYPE:COUNT. A type with a "
            'hyphen goes into `slurm_extra`, with `gres: ""` (profiles/README.md)'
        )
    if names := str(resources.get("slurm_partition") or ""):
        chosen = [partition for partition in partitions if partition.name in names.split(",")]
    else:
        chosen = [partition for partition in partitions if partition.is_default]
    if not chosen:
        all_names = ", ".join(dict.fromkeys(partition.name for partition in partitions))
        return f"there is no partition {names or 'by default'}; known: {all_names}"
    limit_min = max(math.inf if p.limit_min is None else p.limit_min for p in chosen)
    runtime_min = resources.get("runtime") or 0
    if runtime_min > limit_min:
        return (
            f"its last try may take {runtime_min} minutes; {chosen[0].name} allows {limit_min:.0f}"
        )
    options = [f"{OPTIONS[name]}={resources[name]}" for name in OPTIONS if resources.get(name)]
    if gpus := resources.get("gpu"):
        model = resources.get("gpu_model")
        options.append(f"--gpus={model}:{gpus}" if model else f"--gpus={gpus}")
    extra = str(resources.get("slurm_extra") or "")
    try:
        options += shlex.split(extra)
    except ValueError as error:
        return f"slurm_extra {extra!r} is not allowed: {str(error).lower()}"
    return refusal(options, chosen)


def partitions() -> list[Partition]:
    """All partitions; one with several kinds of nodes is there several times."""
    words = ("--noheader", "--all", "--exact", "--format", "%P %a %l %m %c %F %G")
    result = []
    for row in _ask("sinfo", *words).splitlines():
        name, state, limit, memory, cores, numbers, gres = row.split()
        _allocated, _idle, other, total = numbers.split("/")
        partition = Partition(
            name=name.removesuffix("*"),
            is_default=name.endswith("*"),
            is_up=state == "up" and other == "0",
            limit_min=minutes(limit),
            nodes=f"{total} with {cores} cores, {memory} MB and {gres}",
        )
        result.append(partition)
    return result


def refusal(options: Sequence[str], partitions: Sequence[Partition]) -> str:
    """Why sbatch would never start a job with these options in these partitions; empty if it would,
    or if it may later: it also refuses what no node can take now."""
    try:
        _ask("sbatch", "--test-only", *options, "--output=/dev/null", "--wrap=true")
    except SchedulerError as error:
        message = str(error)
        # No node has what the job needs, or those that have are down.
        if "node configuration is not available" in message and all(p.is_up for p in partitions):
            nodes = "; ".join(partition.nodes for partition in partitions)
            return f"no node has what it asks for, {' '.join(options)}; there are {nodes}"
        return message if re.search("invalid|unrecognized", message, re.IGNORECASE) else ""
    return ""


def hosts(job_id: str) -> tuple[list[str], str]:
    """The nodes of a job, and the address of the first. Raises SchedulerError."""
    names = _ask("scontrol", "show", "hostnames", _field("NodeList", "job", job_id)).split()
    return names, _field("NodeAddr", "node", names[0])


def _field(name: str, *entity: str, pattern: str = r"\S+") -> str:
    text = _ask("scontrol", "show", *entity)
    match = re.search(rf"(?:^|\s){name}=({pattern})", text)
    if match is None or match[1] == "(null)":
        raise SchedulerError(f"scontrol reports no {name}: {' '.join(text.split())[:200]}")
    return match[1]


def _queue(*selection: str) -> list[Job]:
    """Jobs from the queue; none if Slurm does not answer."""
    jobs = []
    with suppress(SchedulerError):
        answer = _ask("squeue", "--noheader", "--format", _SEPARATOR.join(_FIELDS), *selection)
        for line in answer.splitlines():
            if _SEPARATOR in line:
                number, state, reason, nodes, limit, ran, *others = line.split(_SEPARATOR)
                jobs.append(
                    Job(number, state, reason, nodes, minutes(limit), minutes(ran), *others)
                )
    return jobs


def _from_accounting(job_id: str) -> list[Job]:
    """A job from the accounting, if the site has one."""
    jobs = []
    words = ("--format", "State,NodeList,Timelimit,Elapsed,ReqMem", "--jobs", job_id)
    with suppress(SchedulerError):
        answer = _ask("sacct", "--allocations", "--noheader", "--parsable2", *words)
        for line in answer.splitlines():
            state, nodes, limit, ran, memory = line.split("|")
            state = state.split()[0]  # "CANCELLED by 1000"
            jobs.append(Job(job_id, state, "", nodes, minutes(limit), minutes(ran), memory))
    return jobs


def _ask(*command: str) -> str:
    """The output of one of Slurm's commands. Raises SchedulerError."""
    try:
        answer = processes.ask(command, ANSWER_S)
    except processes.NO_ANSWER as error:
        raise SchedulerError(f"{command[0]}: {error}") from None
    if answer.returncode:
        reasons = "; ".join(line.strip() for line in answer.stderr.splitlines() if line.strip())
        raise SchedulerError(reasons or f"{command[0]}: exit code {answer.returncode}")
    return answer.stdout


def minutes(text: str) -> float | None:
    """Minutes of Slurm's `[days-]hours:minutes:seconds` or `minutes:seconds`; None for no limit."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    days, hours, minute, seconds = (int(part or 0) for part in match.groups())
    return days * 1440 + hours * 60 + minute + seconds / 60
