"""One driver at a time: who works in this folder, and clearing up after one that was killed."""

import contextlib
import fcntl
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any, TextIO

LOCK = Path(".snakemake/feedrate.driver")
SNAKEMAKE_LOCKS = Path(".snakemake/locks")

_held: TextIO | None = None


def hold() -> None:
    """Mark this process as the driver for as long as it lives; the kernel forgets it at its death.

    Called while the Snakefile is parsed. Where another process holds the mark, nothing happens:
    Snakemake's own lock then refuses the second driver.
    """
    global _held
    if _held is not None:
        return
    with contextlib.suppress(OSError):
        LOCK.parent.mkdir(exist_ok=True)
        stream = LOCK.open("a+", encoding="utf-8")
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            stream.close()
            return
        stream.truncate(0)
        stream.write(
            json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()})
        )
        stream.flush()
        _held = stream


def tell_jobs(execution_settings: Any) -> None:
    """Set what the jobs of this driver, on whatever host, need to know of it.

    `FEEDRATE_RETRIES`: how often Snakemake tries a failed job again. `FEEDRATE_DRIVER_SINCE`: when
    this driver began (seconds since 1970).
    """
    os.environ["FEEDRATE_RETRIES"] = str(getattr(execution_settings, "retries", 0))
    os.environ["FEEDRATE_DRIVER_SINCE"] = str(time.time())


def equip_jobs(package: Path, push_to: str | None) -> None:
    """Set what the jobs of this driver find in their environment.

    A training job ends with the driver, even where that is killed without a word. `python` is the
    driver's own, be its environment activated or not, unless a rule brings another; and jobs in
    environments of their own find the package in the folder `package`. Models go to
    the hub repository `push_to`, if any.
    """
    os.environ["FEEDRATE_DRIVER_PID"] = str(os.getpid())
    if push_to:
        os.environ["FEEDRATE_PUSH_TO"] = push_to
    _put_first("PATH", str(Path(sys.executable).parent))
    _put_first("PYTHONPATH", str(package))


def other_driver() -> str:
    """Who drives a workflow in this folder now, as `process 123 on node7 since 10:42`; else ""."""
    try:
        with LOCK.open("r+", encoding="utf-8") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return _describe(stream.read())
    except OSError:
        return ""
    return ""


def is_locked() -> bool:
    """Whether Snakemake's lock stands, be its owner alive or dead."""
    return SNAKEMAKE_LOCKS.is_dir() and any(SNAKEMAKE_LOCKS.iterdir())


def clear_dead_lock() -> bool:
    """Remove a Snakemake lock whose driver is dead; True where there was one.

    Call only after `other_driver` has answered "".
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


def _describe(text: str) -> str:
    try:
        owner = json.loads(text)
        since = time.strftime("%H:%M", time.localtime(owner["since"]))
        return f"process {owner['pid']} on {owner['host']} since {since}"
    except (ValueError, KeyError, TypeError):
        return "another process"
