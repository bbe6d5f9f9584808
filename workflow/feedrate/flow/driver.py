"""The driver, which is the Snakemake that starts the jobs: the lock of its folder, the environment
of its jobs, and the checks before the first one."""

import contextlib
import fcntl
import json
import os
import re
import shlex
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from feedrate.config.plan import Plan, timeouts_min
from feedrate.config.project import Project
from feedrate.core import paths, slurm, variables
from feedrate.core.processes import this_process
from feedrate.devices.doctor import FAILS, SLOW, examine
from feedrate.flow.attempts import of_run
from feedrate.flow.configuration import profile_names
from feedrate.flow.lost import mend_executor
from feedrate.jobs.earlier import ladders

LOCK = Path(".snakemake/feedrate.driver")
STARTED = Path(".snakemake/feedrate.started")
"""A file that exists if the latest run of the workflow reached its first job."""
SNAKEMAKE_LOCKS = Path(".snakemake/locks")

_held: TextIO | None = None


class Driver(NamedTuple):
    """A process that is, or was, the driver in this folder."""

    pid: int
    host: str
    since: float
    """Seconds since 1970."""

    def __str__(self) -> str:
        """As `process 123 on node7 since 10:42`."""
        clock = time.strftime("%H:%M", time.localtime(self.since))
        return f"process {self.pid} on {self.host} since {clock}"


def hold() -> bool:
    """Lock this folder for this process as the driver, if it is not yet; return whether it is. The
    kernel releases the lock at its death. If another process holds the lock, or may hold it on
    another host, Snakemake's own lock refuses this driver later."""
    global _held
    if _held is not None:
        return True
    with contextlib.suppress(OSError):
        LOCK.parent.mkdir(exist_ok=True)
        stream = LOCK.open("a+", encoding="utf-8")
        if not _take(stream) or unseen_driver():
            stream.close()
            return False
        stream.truncate(0)
        mark = Driver(os.getpid(), socket.gethostname(), time.time())
        stream.write(json.dumps(mark._asdict()))
        stream.flush()
        _held = stream
    return _held is not None


def tell_jobs(workflow: Any) -> None:
    """Tell the jobs on all hosts in environment variables how this driver was called."""
    os.environ[variables.RETRIES] = str(getattr(workflow.execution_settings, "retries", 0))
    os.environ[variables.DRIVER_SINCE] = str(time.time())
    dag = workflow.dag_settings
    forced = dag is not None and (dag.forceall or dag.forcetargets or dag.forcerun)
    os.environ[variables.FORCED] = "1" if forced else ""
    STARTED.parent.mkdir(exist_ok=True)
    STARTED.touch()


def equip_jobs(package: Path, project: Project) -> None:
    """Set the environment variables of the jobs that this process starts, and settings that are no
    reason to train again. `python` is the driver's own, unless a rule brings another; jobs in
    environments of their own find the package in the folder `package`."""
    os.environ[variables.DRIVER_PID] = this_process()
    devices = {name: project.devices[name] for name in project.config.devices}
    patterns = {name: entry.model_pattern for name, entry in devices.items() if entry.model_pattern}
    os.environ[variables.MODEL_PATTERNS] = json.dumps(patterns)
    os.environ[variables.TIMEOUTS] = json.dumps(timeouts_min(project))
    shares = {name: one.max_bad_share for name, one in project.config.datasets.items()}
    os.environ[variables.BAD_SHARES] = json.dumps(shares)
    os.environ[variables.LADDERS] = json.dumps(ladders(project))
    os.environ[variables.PUSH_TO_HUB] = project.config.push_to_hub or ""
    os.environ[variables.REPORT_TO] = ",".join(project.config.report_to)
    _put_first("PATH", str(Path(sys.executable).parent))
    _put_first("PYTHONPATH", str(package))


def arguments_without(target: str) -> str:
    """The arguments of this Snakemake without a target, in the syntax of a shell."""
    words = sys.argv[1:]
    if target in words:
        del words[len(words) - 1 - words[::-1].index(target)]  # the last of them
    return shlex.join(words)


def occupied() -> str:
    """If another run works in this folder, a sentence that says so; otherwise ""."""
    if other := other_driver():
        return f"another run works in this folder ({other}); wait for it, or stop it with Ctrl-C"
    return ""


def other_driver() -> str:
    """The driver in this folder, as `process 123 on node7 since 10:42`; "" if there is none."""
    if _held is not None:
        return ""
    with contextlib.suppress(OSError), LOCK.open("r+", encoding="utf-8") as stream:
        if not _take(stream):
            return str(_read_mark() or "another process")
    return ""


def check_alone() -> None:
    """Raise WorkflowError if another driver works in this folder: Snakemake itself refuses only one
    that makes the same files. The driver's own helper, which records lost runs, passes."""
    from snakemake.exceptions import WorkflowError

    if variables.LOST not in os.environ and (why := occupied()):
        raise WorkflowError(why)


def unseen_driver() -> str:
    """A driver on another host that left Snakemake's lock. Where a file system keeps locks to each
    host, it is unknown here whether it is alive. Call after `other_driver` has returned ""."""
    driver = _read_mark()
    elsewhere = driver is not None and driver.host != socket.gethostname()
    return str(driver) if elsewhere and any(SNAKEMAKE_LOCKS.glob("*")) else ""


def clear_dead_lock() -> bool:
    """Remove Snakemake's lock; True if there was one. Call only after `other_driver` and
    `unseen_driver` have returned "": then its driver is dead."""
    locks = list(SNAKEMAKE_LOCKS.glob("*"))
    for lock in locks:
        lock.unlink(missing_ok=True)
    return bool(locks)


def _put_first(variable: str, folder: str) -> None:
    found = os.environ.get(variable, "").split(os.pathsep)
    rest = [other for other in found if other and other != folder]
    os.environ[variable] = os.pathsep.join([folder, *rest])


def _take(stream: TextIO) -> bool:
    """Whether the lock was free; it is held until the stream is closed."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _read_mark() -> Driver | None:
    """The driver that took the lock last; None if the file does not say."""
    try:
        return Driver(**json.loads(LOCK.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


# Before the first job: Slurm refuses some jobs only when they are sent, which may be hours after
# the start, and never starts others.

GRES = re.compile(r"\w+(:[\w.]+)?(:\d+[TGM]?)?")
"""The form of `gres` that the executor takes."""
WORDS = (
    *("slurm_account", "slurm_partition", "qos", "constraint"),
    *("gres", "gpu_model", "slurm_extra"),
)
"""The resources, but for numbers, with which the executor asks Slurm for a job."""


def check(workflow: Any) -> None:
    """Raise WorkflowError with all kinds of jobs that Slurm would not run. Other executors, and a
    Slurm that does not answer, pass."""
    from snakemake.exceptions import WorkflowError
    from snakemake_executor_plugin_slurm import ExecutorSettings

    if not isinstance(workflow.executor_settings, ExecutorSettings):
        return
    if not slurm.is_installed():
        raise WorkflowError(
            "no sbatch here: this profile sends its jobs to Slurm; run it on a login node, or use "
            f"a profile for one machine (--profile {', '.join(profile_names('local'))})"
        )
    mend_executor(workflow.executor_settings)
    sent = (job for job in workflow.dag.needrun_jobs() if not job.is_local)
    asked = (*WORDS, "nodes", "gpu", "cpus_per_task", "mem_mb", "runtime")
    jobs = {(job.rule.name, *map(job.resources.get, asked)): job for job in sent}
    try:
        nodes = slurm.nodes() if jobs else []
    except slurm.SlurmError:
        return
    last_try, problems = 1 + int(workflow.execution_settings.retries), set()
    for job in jobs.values():
        # A try may have more time than the one before.
        last = job.rule.expand_resources(job.wildcards_dict, job.input, last_try, {"tmpdir"})
        if problem := refusal(job.resources, nodes, last.get("runtime") or 0):
            problems.add(f"  {job.rule.name}: {problem}")
    if problems:
        raise WorkflowError(
            "Slurm would not run what the profile asks for. Nothing was started; change it under "
            "`set-resources` in the profile's config.yaml:\n" + "\n".join(sorted(problems))
        )


def refusal(
    resources: Mapping[str, Any], nodes: Sequence[slurm.Nodes], runtime_min: float = 0
) -> str:
    """Why Slurm would never run a job with these resources on these nodes; empty if it would, maybe
    when nodes that are down are up again."""
    gres, partition = str(resources.get("gres") or ""), resources.get("slurm_partition")
    if gres and not GRES.fullmatch(gres):
        return (
            f"gres {gres!r} is not allowed; expected NAME:COUNT or NAME:TYPE:COUNT. A type with a "
            'hyphen goes into `slurm_extra`, with `gres: ""` (profiles/README.md)'
        )
    own = [n for n in nodes if n.partition == partition or (not partition and n.is_default)]
    if not own:
        names = ", ".join(sorted({n.partition for n in nodes}))
        return f"there is no partition {partition or 'by default'}; known: {names}"
    partition, limit_min = own[0].partition, own[0].limit_min
    if limit_min is not None and runtime_min > limit_min:
        return f"its last try may take {runtime_min} minutes; {partition} allows {limit_min:.0f}"
    number, cores = resources.get("nodes") or 1, resources.get("cpus_per_task") or 0
    memory_mb = resources.get("mem_mb") or 0
    if gpus := resources.get("gpu"):
        gres = ":".join(filter(None, ("gpu", resources.get("gpu_model"), f"{gpus // number}")))
    able = [n for n in own if n.memory_mb >= memory_mb and n.cores >= cores and n.has_gres(gres)]
    if sum(n.number for n in able) < number:
        there = [f"{n.number} with {n.cores}, {n.memory_mb} MB and {n.gres}" for n in own]
        return (
            f"no {number} nodes have {cores} cores, {memory_mb} MB and gres {gres or '(null)'}; "
            f"{partition} has: {', '.join(there)}"
        )
    words = [f"--partition={partition}", *shlex.split(resources.get("slurm_extra") or "")]
    for resource in ("slurm_account", "qos", "constraint"):
        if value := resources.get(resource):
            words.append(f"--{resource.removeprefix('slurm_')}={value}")
    try:
        slurm.ask("sbatch", "--test-only", *words, "--output=/dev/null", "--wrap=true")
    except slurm.SlurmError as error:
        # Its other reasons may pass: it also refuses what no node can take now.
        return str(error) if "invalid" in str(error).lower() else ""
    return ""


def check_machine(workflow: Any, project: Project, plan: Plan, *, here: bool) -> None:
    """Raise WorkflowError for all that is bound to fail where this call trains or pushes, and warn
    of what will be slow. `here`: these jobs run on this host."""
    from snakemake.exceptions import WorkflowError
    from snakemake.logging import logger

    if variables.LOST in os.environ:
        return  # what remains uses no device
    if project.config.push_to_hub and not os.environ.get("HF_TOKEN", "").strip():
        raise WorkflowError(
            "config/config.yaml: push_to_hub needs a token in the environment variable HF_TOKEN; "
            "nothing was started"
        )
    jobs = workflow.dag.needrun_jobs()
    planned = {str(j.output[0]) for j in jobs if j.rule.name.startswith(paths.TRAIN_RULE)}
    specs = [spec for spec in plan.runs.values() if of_run(paths.OUTCOME, spec) in planned]
    found = examine(project, specs, here=here) if specs else []
    for one in found:
        if one.outlook == SLOW:
            logger.warning(f"Will be slow: {one}")
    if bound := [f"  {one}" for one in found if one.outlook == FAILS]:
        raise WorkflowError(
            "Nothing was started, because this is bound to fail (`feedrate doctor` shows all "
            "checks):\n" + "\n".join(bound)
        )
