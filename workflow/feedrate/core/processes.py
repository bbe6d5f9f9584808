"""Processes: asking and stopping them, ending children with their parent, descendants."""

import ctypes
import os
import shlex
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from feedrate.core import variables

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

NO_ANSWER = (OSError, subprocess.TimeoutExpired)  # the errors of a program that cannot be asked

BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
"""Variables by which OpenMP binds the thread that loads it to one core: the processes that this
thread starts, such as loader workers, would inherit that."""

_libc = ctypes.CDLL(None, use_errno=True)  # here, since nothing may be loaded after a fork


def command_text(*words: str) -> str:
    """A command of feedrate as messages show it, such as `python -m feedrate doctor`."""
    return shlex.join(["python", "-m", "feedrate", *words])


def keep_cores() -> None:
    """Let this process and those that it starts keep their cores. Call it before torch is imported.
    The values stay for the record of a run."""
    for name in BINDING:
        if name in os.environ:
            os.environ[f"{variables.UNSET}_{name}"] = os.environ.pop(name)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies (prctl(2)); survives an exec."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def stop_signals() -> list[signal.Signals]:
    """The signals that ask this process to stop: not SIGHUP where `nohup` has it ignored."""
    signals = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    return signals


def ask(
    command: Sequence[str],
    limit_s: float,
    environment: Mapping[str, str] | None = None,
    *,
    dies_with_us: bool = False,
) -> subprocess.CompletedProcess[str]:
    """The answer of a program. Raises NO_ANSWER. `dies_with_us`: for processes without threads."""
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=limit_s,
        env=environment,
        preexec_fn=die_with_parent if dies_with_us else None,
    )


def die_with_supervisor() -> None:
    """Call `die_with_parent`, and exit at once if the supervisor is dead already. On other hosts
    the launcher, the parent, takes the supervisor's place."""
    die_with_parent()
    pid, _, host = os.environ.get(variables.SUPERVISOR_PID, "").partition("@")
    is_here = host in ("", socket.gethostname())
    if pid.isdigit() and is_here and not psutil.pid_exists(int(pid)):
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent dies, so that `descendants` finds them."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants() -> list[psutil.Process]:
    """All living processes below this one, of any group or session; no zombies."""
    return [child for child in psutil.Process().children(recursive=True) if is_alive(child)]


def is_alive(process: psutil.Process) -> bool:
    """Whether a process has not ended. A zombie has ended."""
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def listed_descendants(root: psutil.Process) -> list[psutil.Process]:
    """The processes below `root` that main threads started, as the kernel lists them. psutil reads
    every process of the host, which takes milliseconds: too long for a timed window. It is used
    only if this kernel has no such lists."""
    if not Path("/proc/self/task", str(os.getpid()), "children").exists():
        return root.children(recursive=True)
    processes = [root]
    for parent in processes:  # grows while it is read
        pid = str(parent.pid)
        with suppress(OSError):
            for child in Path("/proc", pid, "task", pid, "children").read_text().split():
                with suppress(psutil.NoSuchProcess):
                    processes.append(psutil.Process(int(child)))
    return processes[1:]
