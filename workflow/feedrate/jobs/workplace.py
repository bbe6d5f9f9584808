"""A run's folder, and the folders beside it in which jobs of the run work.

A run is complete or absent. A job works in a folder of its own, its workplace, writes outcome.json
there last, and publishes it by one rename. So two jobs of one run are harmless: the first counts.
A workplace is named by the start of its call of Snakemake and by its job:
`.<run>.<since>.job-<job>` or `.<run>.<since>.pid-<pid>-<start>@<host>`.
"""

import errno
import os
import re
import shutil
import socket
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from feedrate.core import scheduler
from feedrate.core.errors import SENTENCE
from feedrate.core.files import end_of_file
from feedrate.core.paths import LOG_NAME, OUTCOME_NAME, RUN_FOLDER

NO_CALL = "0"  # `since` of a job that no Snakemake has started

_WORKPLACE = re.compile(r"(?P<since>[\d.]+)\.(?P<token>(?:job|pid)-.+)")
_PID = re.compile(r"pid-(?P<pid>\d+)-(?P<start>\d+)@(?P<host>.+)")
_OCCUPIED = (errno.ENOTEMPTY, errno.EEXIST)


class Workplace(NamedTuple):
    """A folder in which a job of a run works or worked."""

    path: Path
    since: str
    token: str

    @property
    def job(self) -> str:
        """The number of its job on a cluster; empty elsewhere."""
        return self.token.removeprefix("job-") if self.token.startswith("job-") else ""

    @property
    def is_at_work(self) -> bool:
        """Whether its job may still run. A process on another host may, as far as is known here."""
        if self.job:
            job = scheduler.find(self.job)
            is_ours = self.job == scheduler.this_job()  # then it is of an earlier process
            return job is not None and not job.is_over and not is_ours
        process = _PID.fullmatch(self.token)
        if process is None or process["host"] != socket.gethostname():
            return True
        return _start_ticks(int(process["pid"])) == int(process["start"])


def parts_of(run: Path) -> tuple[str, int]:
    """The identity in a run's name, if it has one, and the number of the attempt."""
    name = RUN_FOLDER.fullmatch(run.name)
    return (name["identity"], int(name["attempt"] or 1)) if name else ("", 1)


def is_complete(run: Path) -> bool:
    """Whether a job has published the run."""
    return (run / OUTCOME_NAME).is_file()


def workplace(run: Path, since: str) -> Workplace:
    """The workplace of this process, of the call that began at `since`; nothing is made."""
    job, pid = scheduler.this_job(), os.getpid()
    token = f"job-{job}" if job else f"pid-{pid}-{_start_ticks(pid)}@{socket.gethostname()}"
    return Workplace(run.with_name(f".{run.name}.{since}.{token}"), since, token)


def leftovers(run: Path) -> list[Workplace]:
    """All workplaces of a run, oldest first."""
    places: list[tuple[float, Workplace]] = []
    prefix = f".{run.name}."
    for path in run.parent.glob(f"{prefix}*"):
        if name := _WORKPLACE.fullmatch(path.name.removeprefix(prefix)):
            with suppress(FileNotFoundError):
                places.append((path.stat().st_mtime, Workplace(path, name["since"], name["token"])))
    return [place for _, place in sorted(places)]


def publish(place: Path, run: Path) -> bool:
    """Give a workplace the name of its run, in one step. False if another job was first."""
    while True:
        try:
            place.rename(run)  # rename(2) replaces an empty folder, which Snakemake makes
        except OSError as error:
            if error.errno not in _OCCUPIED:
                raise
        else:
            return True
        if not is_complete(run):  # its outcome was removed, to force a new run
            replaced = place / "replaced"
            with suppress(FileNotFoundError):
                run.rename(replaced)
            if not is_complete(replaced):
                shutil.rmtree(replaced, ignore_errors=True)
                continue
            with suppress(OSError):  # another job published it in this moment
                replaced.rename(run)
        shutil.rmtree(place, ignore_errors=True)
        return False


def keep_log(place: Path) -> Path:
    """Remove everything from a workplace but its log, and return the log's path."""
    for path in place.iterdir() if place.is_dir() else ():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != LOG_NAME:
            path.unlink(missing_ok=True)
    return place / LOG_NAME


def remove_ended(run: Path) -> None:
    """Remove the workplaces of a run whose jobs have ended."""
    for place in leftovers(run):
        if not place.is_at_work:
            shutil.rmtree(place.path, ignore_errors=True)


def cause_of_missing(run: Path) -> str:
    """Why a planned run has no folder, as far as its last job's end, or else its log, tells."""
    places = leftovers(run)
    job = scheduler.find(places[-1].job) if places else None
    if job and (cause := scheduler.why_ended(job)):
        return cause
    if places and places[-1].is_at_work:
        return "its job has not ended"
    logs = [run.with_name(f"{run.name}.log"), *(place.path / LOG_NAME for place in places[-1:])]
    for log in logs:
        with suppress(OSError):
            if sentences := SENTENCE.findall(end_of_file(log)):
                return str(sentences[-1])
    if places:
        return "its process ended without a result; probably it was killed"
    return "no job of this run has ended"


def _start_ticks(pid: int) -> int | None:
    """Start of a process in ticks since boot, which no clock change moves; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
