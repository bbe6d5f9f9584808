"""Work on untrusted input in other processes: a crash or a hang loses one item, not the run.

Each process has its own pipe and one item, so the right item is lost. In a pool whose processes
share a pipe, such as Pebble's, it is sometimes another one.
"""

import multiprocessing
import resource
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import psutil

from feedrate.core.processes import die_with_parent

MEMORY_BYTES = 2 * 2**30
"""Address space that a process may use in addition to that of its imports."""


class Lost(NamedTuple):
    """An item without a result: the reason, such as a crash of its process."""

    reason: str


def run_isolated(
    task: Callable[..., Any], items: Sequence[Any], workers: int, timeout_s: float
) -> list[Any]:
    """Compute `task` of every item in `workers` new processes; return the results in order, Lost
    for an item whose process ends or takes longer than `timeout_s`. Raises what `task` raises."""
    spawn = multiprocessing.get_context("spawn")
    results: list[Any] = [None] * len(items)
    waiting, idle = list(reversed(range(len(items)))), []
    processes, at_work = {}, {}  # a process and the number of its item, by pipe
    try:
        while waiting or at_work:
            while waiting and len(at_work) < workers:
                if not idle:
                    pipe, theirs = spawn.Pipe()
                    process = spawn.Process(target=_serve, args=(task, timeout_s, theirs))
                    process.start()
                    processes[pipe] = process
                    theirs.close()
                    idle.append(pipe)
                pipe = idle.pop()
                at_work[pipe] = waiting.pop()
                with suppress(BrokenPipeError):  # it has ended, so `recv` raises EOFError
                    pipe.send(items[at_work[pipe]])
            for pipe in wait(at_work):
                number, error = at_work.pop(pipe), None
                try:
                    results[number], error = pipe.recv()
                    idle.append(pipe)
                except (EOFError, OSError):
                    process = processes.pop(pipe)
                    process.join()
                    code = process.exitcode
                    end = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                    results[number] = Lost(f"reading it ended the process ({end})")
                    if end == "SIGALRM":
                        results[number] = Lost(f"it took longer than {timeout_s:g} s")
                if error is not None:
                    raise error
    finally:
        for process in processes.values():
            process.kill()
            process.join()
    return results


def _serve(task: Callable[..., Any], timeout_s: float, pipe: Connection) -> None:
    """Compute `task` of the items from the pipe; an alarm ends a process that takes too long."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    die_with_parent()
    with suppress(OSError, ValueError):  # the system has no such limit, or a smaller one
        limit = psutil.Process().memory_info().vms + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    with suppress(EOFError, OSError):
        while True:
            item = pipe.recv()
            signal.setitimer(signal.ITIMER_REAL, timeout_s)
            try:
                answer = task(item), None
            except Exception as raised:
                answer = None, raised
            signal.setitimer(signal.ITIMER_REAL, 0)
            pipe.send(answer)
