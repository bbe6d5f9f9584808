"""The processes that a process has started, directly or not, and the CPU time they take."""

import os
from collections import defaultdict
from pathlib import Path

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
