"""Processes that do not outlive the one that started them, however that one dies."""

import ctypes
import os
import signal
import socket
from collections import defaultdict
from pathlib import Path

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


# The processes that a process has started, directly or not, and the CPU time they take.

PROC = Path("/proc")


def cpu_time_s(root: int, proc: Path = PROC) -> float:
    """CPU seconds that `root` and all living processes below it have taken, in all threads."""
    ticks = 0
    for pid in (root, *family(root)):
        try:
            fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])  # utime and stime, proc(5)
    return ticks / os.sysconf("SC_CLK_TCK")


def family(root: int) -> list[int]:
    """Processes that main threads below `root` started: cheap, where the kernel lists children."""
    found: list[int] = []
    queue = [root]
    while queue:
        pid = queue.pop()
        try:
            listed = (PROC / str(pid) / "task" / str(pid) / "children").read_text().split()
        except FileNotFoundError:
            if pid == root:
                return descendants(root)
            continue
        except OSError:
            continue
        below = [int(child) for child in listed]
        found += below
        queue += below
    return found


def descendants(root: int, proc: Path = PROC) -> list[int]:
    """All living processes below `root`, whatever their group or session; zombies left out."""
    children: dict[int, list[int]] = defaultdict(list)
    for folder in proc.iterdir():
        if folder.name.isdigit():
            try:
                # "<pid> (<name, which may hold anything>) <state> <parent> ..."
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state not in "ZX":
                children[int(parent)].append(int(folder.name))
    return _below(root, children)


def _below(root: int, children: dict[int, list[int]]) -> list[int]:
    found: list[int] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found
