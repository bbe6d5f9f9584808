"""The driver, which is the Snakemake that starts the jobs: the lock of its folder, the environment
of its jobs, what a killed driver left, and the checks before the first job."""

import contextlib
import fcntl
import os
import shlex
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import msgspec

from feedrate.config.project import Project
from feedrate.config.spec import RunSpec
from feedrate.core import slurm, variables
from feedrate.core.errors import ExpectedError, tell
from feedrate.core.variables import DriverCall
from feedrate.devices.doctor import FAILS, SLOW, examine
from feedrate.flow import preflight
from feedrate.flow.configuration import Call, profile_names, snakemake_options

LOCK = Path(".snakemake/feedrate.driver")
STARTED = Path(".snakemake/feedrate.started")
"""A file that exists if the latest call of the workflow reached its first job."""
OLD_RUNS = "results/*/*/*/rep*/outcome.json"
"""Runs of version 0.0, whose folders had no identity in their names."""
ENDED_S = 60.0
"""How long cancelled jobs may take to end: Slurm kills them half a minute after it asked."""

_lock: TextIO | None = None


class Occupied(ExpectedError):
    """Another driver works in this folder."""


def start(call: Call, workflow_folder: Path) -> None:
    """Begin as the driver of this folder: lock it, set the environment of the jobs, and cancel jobs
    that a killed driver left on Slurm. Raises Occupied and ExpectedError."""
    if any(Path().glob(OLD_RUNS)):
        raise ExpectedError(
            f"results/ has runs of an earlier layout ({OLD_RUNS}), which this version cannot "
            "continue, because nothing states what they were made from: move or delete results/"
        )
    since = f"{time.time():.3f}"
    _hold(DriverCall(pid=os.getpid(), host=socket.gethostname(), since=since))
    environment = DriverCall(
        pid=os.getpid(),
        host=socket.gethostname(),
        since=since,
        retries=call.retries,
        quiet=call.is_quiet,
    )
    os.environ[variables.DRIVER] = msgspec.json.encode(environment).decode()
    _put_first("PATH", str(Path(sys.executable).parent))
    _put_first("PYTHONPATH", str(workflow_folder))
    if not call.is_local:
        cancel_left_over_jobs()
    STARTED.touch()


def _put_first(variable: str, folder: str) -> None:
    """Jobs find this Python and this package, unless their rule brings others."""
    folders = os.environ.get(variable, "").split(os.pathsep)
    rest = [other for other in folders if other and other != folder]
    os.environ[variable] = os.pathsep.join([folder, *rest])


def _hold(call: DriverCall) -> None:
    """Lock this folder until this process ends: the kernel releases the lock. The file keeps the
    driver's name after a kill, and is empty after an end by itself."""
    global _lock
    LOCK.parent.mkdir(exist_ok=True)
    stream = LOCK.open("a+", encoding="utf-8")
    if why := occupied(stream):
        raise Occupied(why)
    stream.truncate(0)
    stream.write(msgspec.json.encode(call).decode())
    stream.flush()
    _lock = stream


def release() -> None:
    """Say that this driver has ended by itself."""
    if _lock is not None:
        _lock.truncate(0)


def occupied(stream: TextIO | None = None) -> str:
    """Why no driver may start in this folder; empty if one may. With a stream of the file `LOCK`,
    this process then holds the lock."""
    with contextlib.ExitStack() as stack:
        if stream is None:
            if not LOCK.is_file():
                return ""
            stream = stack.enter_context(LOCK.open("r+", encoding="utf-8"))
        driver = _read_driver()
        name = ""
        if driver:
            clock = time.strftime("%H:%M", time.localtime(float(driver.since)))
            name = f" (process {driver.pid} on {driver.host} since {clock})"
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return f"another run works in this folder{name}; wait for its end, or stop it"
        if driver and driver.host != socket.gethostname():
            # Some file systems keep locks to each host.
            return (
                f"a run on another host works in this folder{name}, or was killed there; if it has "
                f"ended, delete {LOCK}"
            )
    return ""


def _read_driver() -> DriverCall | None:
    """The driver that took the lock last, unless it ended by itself."""
    try:
        return msgspec.json.decode(LOCK.read_bytes(), type=DriverCall)
    except (OSError, ValueError):
        return None


def cancel_left_over_jobs() -> None:
    """Cancel the jobs that a killed driver left on Slurm, and wait until they have ended: the next
    jobs measure their runs again. Call while holding the lock."""
    jobs = slurm.own_jobs()
    if not jobs:
        return
    tell("feedrate", f"cancelling {len(jobs)} jobs that a killed run left on Slurm")
    slurm.cancel(jobs)
    until_s = time.monotonic() + ENDED_S
    while slurm.own_jobs() and time.monotonic() < until_s:
        time.sleep(1)


def report_command(call: Call) -> str:
    """The command that makes the report of this call's runs, without Snakemake."""
    return shlex.join(["python", "-m", "feedrate", "report", *call.choices])


def arguments_without(target: str) -> list[str]:
    """The arguments of this Snakemake without a target."""
    words = sys.argv[1:]
    if target in words:
        del words[len(words) - 1 - words[::-1].index(target)]  # the last of them
    return words


def check(project: Project, specs: Sequence[RunSpec], call: Call) -> None:
    """Raise ExpectedError for all that is bound to fail where this call trains the runs `specs`, or
    pushes models; warn of what will be slow."""
    if not specs:
        return
    if project.config.push_to_hub and not os.environ.get("HF_TOKEN", "").strip():
        raise ExpectedError(
            "config/config.yaml: push_to_hub needs a token in the environment variable HF_TOKEN; "
            "nothing was started"
        )
    if not (call.is_local or slurm.is_installed()):
        raise ExpectedError(
            "no sbatch here: this profile sends its jobs to Slurm; run it on a login node, or use "
            f"a profile for one machine (--profile {', '.join(profile_names('local'))})"
        )
    findings = examine(project, specs, here=call.is_local)
    for finding in findings:
        if finding.outlook == SLOW:
            tell("feedrate", f"will be slow: {finding}")
    bound = [str(finding) for finding in findings if finding.outlook == FAILS]
    options = snakemake_options(sys.argv[1:])
    with contextlib.suppress(slurm.SlurmError):  # it may answer when the jobs are sent
        bound += preflight.problems(options, project, dict.fromkeys(spec.device for spec in specs))
    if bound:
        raise ExpectedError(
            "Nothing was started, because this is bound to fail (`feedrate doctor` shows all "
            "checks):\n" + "\n".join(f"  {problem}" for problem in bound)
        )
