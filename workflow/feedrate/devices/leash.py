"""Processes that do not outlive the one that started them, however that one dies."""

import ctypes
import os
import signal
import socket

from feedrate import variables

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
    """`die_with_parent`, and end at once if the supervisor has died before this was called.

    On another host than the supervisor's, its launcher there is the parent to die with.
    """
    die_with_parent()
    pid, _, host = os.environ.get(variables.SUPERVISOR_PID, "").partition("@")
    if pid.isdigit() and host in ("", socket.gethostname()) and not is_alive(int(pid)):
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent dies, so that they can still be found."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def is_alive(pid: int) -> bool:
    """Whether a process of this number exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
