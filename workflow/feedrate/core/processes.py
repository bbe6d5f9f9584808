"""Process trees: that none outlives its parent, which processes are below one, their CPU time."""

import ctypes
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

import psutil

from feedrate.core import variables

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)  # loaded here: nothing may be loaded after a fork


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies (prctl(2)); survives an exec."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def supervisor() -> str:
    """This process as the value of `variables.SUPERVISOR_PID`."""
    return f"{os.getpid()}@{socket.gethostname()}"


def die_with_supervisor() -> None:
    """`die_with_parent`, and end at once if the supervisor died before this was called.

    On another host than the supervisor's, the parent is the supervisor's launcher there.
    """
    die_with_parent()
    pid, _, host = os.environ.get(variables.SUPERVISOR_PID, "").partition("@")
    here = host in ("", socket.gethostname())
    if pid.isdigit() and here and not psutil.pid_exists(int(pid)):
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent dies, so that they can still be found."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants() -> list[psutil.Process]:
    """All living processes below this one, whatever their group or session; no zombies."""
    return [child for child in psutil.Process().children(recursive=True) if is_alive(child)]


def is_alive(process: psutil.Process) -> bool:
    """Whether a process has not ended; a zombie has."""
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def listed_descendants(root: psutil.Process) -> list[psutil.Process]:
    """The processes below `root` that main threads started, as the kernel lists them.

    psutil reads every process of the host to find these, milliseconds on a small host: too much
    inside a timed window. It does so only where the kernel lists no children.
    """
    found = [root]
    for parent in found:  # grows while it is read
        pid = str(parent.pid)
        try:
            children = Path("/proc", pid, "task", pid, "children").read_text().split()
        except FileNotFoundError:
            if parent is root:
                return list(root.children(recursive=True))
            continue
        except OSError:
            continue
        for child in children:
            with suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(int(child)))
    return found[1:]


def cpu_time_s(root: int | None = None) -> float:
    """CPU seconds that `root` (this process) and all living processes below it have taken."""
    process, total_s = psutil.Process(root), 0.0
    for one in (process, *listed_descendants(process)):
        with suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total_s += times.user + times.system
    return total_s
