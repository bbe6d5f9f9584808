"""The driver, which is the Snakemake that starts the jobs: the lock of its folder, the environment
of its jobs, what a killed driver left, and the checks before the first job."""

import contextlib
import fcntl
import os
import socket
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import msgspec

from feedrate.config.project import Project
from feedrate.config.spec import RunSpec
from feedrate.core import scheduler, variables
from feedrate.core.errors import ExpectedError, print_error, tell
from feedrate.core.files import check_project
from feedrate.core.processes import command_text
from feedrate.core.variables import DriverCall
from feedrate.devices.doctor import FAILS, SLOW, examine
from feedrate.flow import configuration, resources
from feedrate.flow.configuration import Layers, profile_names, read_profile
from feedrate.flow.graph import Graph
from feedrate.report.text import counted

LOCK = Path(".snakemake/feedrate.driver")
STARTED = Path(".snakemake/feedrate.started")
"""A file that exists if the latest call of the workflow reached its first job."""
ENDED_S = 60.0
"""How long cancelled jobs may take to end: Slurm kills them half a minute after it asked."""

_lock: TextIO | None = None


class Occupied(ExpectedError):
    """Another driver works in this folder."""

    exit_code = 3


def plan(graph: Graph, layers: Layers) -> None:
    """Begin to plan as the driver: check the targets of this call, and write the plans of the
    studies. A dry run does not start, so the files are checked here. Raises ExpectedError."""
    check_project(graph.root)
    call = configuration.call()
    configuration.check_targets(graph.root, graph.project, layers, call.targets)
    if not call.report:
        graph.write_plans()
    if call.dryrun:
        specs = graph.runs_to_do(call.targets)
        configuration.check_files(graph.project, specs, layers, runs_here=call.is_local)


def start(graph: Graph, layers: Layers) -> None:
    """Begin as the driver of this folder: lock it, set the environment of the jobs, cancel jobs of
    a killed driver, and check what would fail. Raises ExpectedError."""
    call = configuration.call()
    specs = graph.runs_to_do(call.targets)
    configuration.check_files(graph.project, specs, layers, runs_here=call.is_local)
    driver = DriverCall(
        pid=os.getpid(),
        host=socket.gethostname(),
        since=f"{time.time():.3f}",
        is_local=call.is_local,
        retries=int(call.retries or 0),
        quiet=bool(call.quiet),
        choices=tuple(call.choices),
    )
    lock_folder(driver)
    os.environ[variables.DRIVER] = msgspec.json.encode(driver).decode()
    # Jobs find this Python and this package, unless their rule brings others.
    search_paths = {"PATH": Path(sys.executable).parent, "PYTHONPATH": graph.root / "workflow"}
    for variable, folder in search_paths.items():
        folders = os.environ.get(variable, "").split(os.pathsep)
        others = [name for name in folders if name not in ("", str(folder))]
        os.environ[variable] = os.pathsep.join([str(folder), *others])
    if not call.is_local:
        cancel_left_over_jobs()
    check(graph.project, specs, call)
    STARTED.touch()


def end(graph: Graph) -> None:
    """End as the driver: note that this process ended by itself; say how to get a report if jobs
    were lost, so that Snakemake could not make it."""
    if _lock is not None:
        _lock.truncate(0)
    call = configuration.call()
    runs = graph.runs_to_do(call.targets)
    lost = [spec for spec in runs if not Path(graph.outcome(spec)).is_file()]
    if lost and STARTED.is_file():
        # These options leave rules out, and with them runs.
        limits = [option for option in ("until", "omit_from") if getattr(call, option)]
        without = "".join(f" without --{option.replace('_', '-')}" for option in limits)
        print_error(
            f"{counted(len(lost), 'run')} without a result; the same command{without} measures "
            f"them. For a report of what there is: {command_text('report', *call.choices)}"
        )


def lock_folder(call: DriverCall) -> None:
    """Lock this folder until this process ends: the kernel releases the lock. The file keeps the
    driver's name after a kill, and is empty after an end by itself. Raises Occupied."""
    global _lock
    LOCK.parent.mkdir(exist_ok=True)
    stream = LOCK.open("a+", encoding="utf-8")
    reason = occupied(stream)
    if reason:
        raise Occupied(reason)
    stream.truncate(0)
    stream.write(msgspec.json.encode(call).decode())
    stream.flush()
    _lock = stream


def occupied(stream: TextIO | None = None) -> str:
    """Why no driver may start in this folder; empty if one may. With a stream of the file `LOCK`,
    this process then holds the lock."""
    with contextlib.ExitStack() as stack:
        if stream is None:
            if not LOCK.is_file():
                return ""
            stream = stack.enter_context(LOCK.open("r+", encoding="utf-8"))
        name, driver = "", None
        with contextlib.suppress(ValueError):  # empty after an end by itself
            driver = msgspec.json.decode(LOCK.read_bytes(), type=DriverCall)
        if driver:
            clock = time.strftime("%H:%M", time.localtime(float(driver.since)))
            name = f" (process {driver.pid} on {driver.host} since {clock})"
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return f"another call works in this folder{name}; wait until it ends, or stop it"
        if driver and driver.host != socket.gethostname():
            # Some file systems keep locks to each host.
            return (
                f"a call on another host works in this folder{name}, or was killed there; if it "
                f"has ended, delete {LOCK}"
            )
    return ""


def cancel_left_over_jobs() -> None:
    """Cancel the jobs that a killed driver left on the cluster, and wait until they have ended:
    the next jobs measure their runs again. Call while holding the lock."""
    jobs = scheduler.own_jobs()
    if not jobs:
        return
    killed = f"{counted(len(jobs), 'job')} that a killed call left on {scheduler.NAME}"
    tell("feedrate", f"cancelling {killed}")
    scheduler.cancel(jobs)
    until_s = time.monotonic() + ENDED_S
    while scheduler.own_jobs() and time.monotonic() < until_s:
        time.sleep(1)


def check(project: Project, specs: Sequence[RunSpec], call: Namespace) -> None:
    """Raise ExpectedError for all that is bound to fail where this call trains the runs `specs`, or
    pushes models; warn of what will be slow."""
    if not specs:
        return
    if project.config.push_to_hub and not os.environ.get("HF_TOKEN", "").strip():
        raise ExpectedError(
            "config/config.yaml: push_to_hub needs a token in the environment variable HF_TOKEN; "
            "nothing was started"
        )
    absence = "" if call.is_local else scheduler.why_absent()
    if absence:
        local = [n for n in profile_names() if read_profile(f"profiles/{n}")[0] == "local"]
        raise ExpectedError(
            f"{absence}: this profile sends its jobs to {scheduler.NAME}; run it on a login node, "
            f"or use a profile for one machine (--profile {', '.join(local)})"
        )
    faults = []
    for finding in examine(project, specs, runs_here=call.is_local):
        if finding.outlook == SLOW:
            tell("feedrate", f"will be slow: {finding}")
        elif finding.outlook == FAILS:
            faults.append(str(finding))
    with contextlib.suppress(scheduler.SchedulerError):  # it may answer when the jobs are sent
        faults += resources.problems(call, project, dict.fromkeys(spec.device for spec in specs))
    if faults:
        doctor = command_text("doctor")
        head = f"Nothing was started, because this will fail (`{doctor}` shows all checks):"
        raise ExpectedError("\n  ".join([head, *faults]))
