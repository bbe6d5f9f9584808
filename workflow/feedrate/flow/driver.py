"""One driver at a time: who works in this folder, and clearing up after one that was killed."""

import contextlib
import fcntl
import json
import os
import shlex
import socket
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from feedrate.config.plan import timeouts_min
from feedrate.config.project import Project
from feedrate.core import variables
from feedrate.jobs.earlier import ladders

LOCK = Path(".snakemake/feedrate.driver")
STARTED = Path(".snakemake/feedrate.started")
"""A file that is there if the latest run of the workflow came as far as its first job."""
SNAKEMAKE_LOCKS = Path(".snakemake/locks")

_held: TextIO | None = None


@dataclass(frozen=True)
class Driver:
    """A process that drives a workflow in this folder, or did."""

    pid: int
    host: str
    since: float
    """Seconds since 1970."""

    def __str__(self) -> str:
        """As `process 123 on node7 since 10:42`."""
        clock = time.strftime("%H:%M", time.localtime(self.since))
        return f"process {self.pid} on {self.host} since {clock}"


def hold() -> bool:
    """Mark this process as the driver for as long as it lives; the kernel forgets it at its death.

    Called while the Snakefile is parsed. Where another process holds the mark, or may hold it on
    another host, nothing happens: Snakemake's own lock then refuses the second driver. Returns
    whether this process is the driver.
    """
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
        stream.write(
            json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()})
        )
        stream.flush()
        _held = stream
    return _held is not None


def tell_jobs(workflow: Any) -> None:
    """Set what the jobs of this driver, on whatever host, need to know of it.

    `RETRIES`: how often Snakemake tries a failed job again. `DRIVER_SINCE`: when
    this driver began (seconds since 1970). `FORCED`: it was told to run jobs again that
    are done.
    """
    os.environ[variables.RETRIES] = str(getattr(workflow.execution_settings, "retries", 0))
    os.environ[variables.DRIVER_SINCE] = str(time.time())
    dag = workflow.dag_settings
    forced = dag is not None and (dag.forceall or dag.forcetargets or dag.forcerun)
    os.environ[variables.FORCED] = "1" if forced else ""
    STARTED.parent.mkdir(exist_ok=True)
    STARTED.touch()


def equip_jobs(package: Path, project: Project) -> None:
    """Set what the jobs of this driver find in their environment.

    A training job ends with the driver, even where that is killed without a word. `python` is the
    driver's own, be its environment activated or not, unless a rule brings another; and jobs in
    environments of their own find the package in the folder `package`. What is no reason to train
    again travels here too: that models are to be kept, how long a job may take, and the devices'
    model patterns.
    """
    os.environ[variables.DRIVER_PID] = f"{os.getpid()}@{socket.gethostname()}"
    os.environ[variables.MODEL_PATTERNS] = json.dumps(
        {
            name: project.devices[name].model_pattern
            for name in project.config.devices
            if project.devices[name].model_pattern
        }
    )
    os.environ[variables.TIMEOUTS] = json.dumps(timeouts_min(project))
    os.environ[variables.LADDERS] = json.dumps(ladders(project))
    if project.config.push_to_hub:
        os.environ[variables.KEEP_WEIGHTS] = "1"
    _put_first("PATH", str(Path(sys.executable).parent))
    _put_first("PYTHONPATH", str(package))


def arguments_without(target: str) -> str:
    """The arguments of this Snakemake but for a target, as a shell reads them."""
    words = sys.argv[1:]
    places = [place for place, word in enumerate(words) if word == target]
    return shlex.join(words[: places[-1]] + words[places[-1] + 1 :] if places else words)


def occupied() -> str:
    """That another run works in this folder, as a sentence; else ""."""
    other = other_driver()
    say = f"another run works in this folder ({other}); wait for it, or stop it with Ctrl-C"
    return say if other else ""


def other_driver() -> str:
    """Who drives a workflow in this folder now, as `process 123 on node7 since 10:42`; else ""."""
    if _held is not None:
        return ""
    with contextlib.suppress(OSError), LOCK.open("r+", encoding="utf-8") as stream:
        if not _take(stream):
            return str(_read_mark() or "another process")
    return ""


def unseen_driver() -> str:
    """A driver on another host, if its lock stands: from here nobody can tell whether it lives,
    where a file system keeps its locks to each host. Call after `other_driver` has answered "".
    """
    driver = _read_mark()
    elsewhere = driver is not None and driver.host != socket.gethostname()
    return str(driver) if elsewhere and is_locked() else ""


def is_locked() -> bool:
    """Whether Snakemake's lock stands, be its owner alive or dead."""
    return SNAKEMAKE_LOCKS.is_dir() and any(SNAKEMAKE_LOCKS.iterdir())


def clear_dead_lock() -> bool:
    """Remove a Snakemake lock whose driver is dead; True where there was one.

    Call only after `other_driver` and `unseen_driver` have answered "".
    """
    if not is_locked():
        return False
    for lock in SNAKEMAKE_LOCKS.iterdir():
        lock.unlink(missing_ok=True)
    return True


def _put_first(variable: str, folder: str) -> None:
    """Put a folder at the head of a search path."""
    found = os.environ.get(variable, "").split(os.pathsep)
    rest = [other for other in found if other and other != folder]
    os.environ[variable] = os.pathsep.join([folder, *rest])


def _take(stream: TextIO) -> bool:
    """Whether the mark was free; it is held until the stream is closed."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _read_mark() -> Driver | None:
    """The driver that made the mark; None where there is none that can be read."""
    try:
        return Driver(**json.loads(LOCK.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


# How this Snakemake was called, which it tells the Snakefile only in part.


class Call(NamedTuple):
    """The arguments that matter to the configuration, of the command line and its profiles."""

    executor: str
    targets: list[str]
    configfiles: list[Path]
    """The --configfile of the command line, else the `configfile` of the profiles: Snakemake reads
    only one of them."""
    profile_files: list[Path]
    """The `configfile` of the profiles if Snakemake does not read it."""

    @property
    def is_local(self) -> bool:
        """Whether jobs run on this host."""
        return self.executor == "local"


@cache
def call() -> Call:
    """How this process, Snakemake's main one, was called."""
    from snakemake.cli import get_argument_parser

    words = sys.argv[1:]
    profiles = get_argument_parser().parse_known_args(words)[0].profile
    parser = get_argument_parser(profiles=profiles)
    options = parser.parse_known_args(words)[0]
    hidden = profiles and any(word.startswith("--configfile") for word in words)
    files = parser.parse_known_args([])[0].configfile if hidden else None
    return Call(
        executor=options.executor or "local",
        targets=list(options.targets or []),
        configfiles=list(options.configfile or []),
        profile_files=[Path(name).resolve() for name in files or []],
    )


def profile_files(*, main_process: bool) -> list[Path]:
    """The files under `configfile` in the profiles that this call of Snakemake names.

    They are read in addition to the --configfile of the command line, which overrides them. Jobs,
    which are called without a profile, read what the main process found.
    """
    if main_process:
        files = os.pathsep.join(map(str, call().profile_files))
        os.environ[variables.PROFILE_FILES] = files
    told = os.environ.get(variables.PROFILE_FILES, "").split(os.pathsep)
    return [Path(name) for name in told if name]
