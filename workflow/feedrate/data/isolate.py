"""Work on untrusted input in other processes: a crash or a hang loses one item, not the run. Each
process has its own pipe; if they share one, as Pebble's do, a crash can lose another item too."""

import multiprocessing
import resource
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import psutil

from feedrate.core.processes import die_with_parent

MEMORY_BYTES = 2 * 2**30  # address space of a process in addition to that of its imports


class Lost(NamedTuple):
    """An item without a result, and why."""

    reason: str


def run_isolated(
    task: Callable[..., Any], items: Sequence[Any], workers: int, timeout_s: float
) -> list[Any]:
    """Compute `task` of every item in `workers` new processes; return the results in order, Lost
    for an item whose process ends or takes longer than `timeout_s`. Raises what `task` raises."""
    spawn = multiprocessing.get_context("spawn")
    results: list[Any] = [None] * len(items)
    waiting = list(reversed(range(len(items))))
    processes: dict[Any, Any] = {}  # by pipe
    at_work: dict[Any, int] = {}  # the number of an item, by pipe
    try:
        while waiting or at_work:
            while waiting and len(at_work) < workers:
                pipe: Any = next((idle for idle in processes if idle not in at_work), None)
                if pipe is None:
                    pipe, theirs = spawn.Pipe()
                    process = spawn.Process(target=_serve, args=(task, timeout_s, theirs))
                    process.start()
                    processes[pipe] = process
                    theirs.close()
                at_work[pipe] = waiting.pop()
                with suppress(BrokenPipeError):  # it has ended, so `recv` raises EOFError
                    pipe.send(items[at_work[pipe]])
            for pipe in wait(at_work):
                number, error = at_work.pop(pipe), None
                try:
                    results[number], error = pipe.recv()
                except (EOFError, OSError):
                    process = processes.pop(pipe)
                    process.join()
                    code = process.exitcode
                    end = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
                    reason = f"reading it ended the process ({end})"
                    if code == -signal.SIGALRM:
                        reason = f"it took longer than {timeout_s:g} s"
                    results[number] = Lost(reason)
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
            item, result, error = pipe.recv(), None, None
            signal.setitimer(signal.ITIMER_REAL, timeout_s)
            try:
                result = task(item)
            except Exception as raised:
                error = raised
            signal.setitimer(signal.ITIMER_REAL, 0)
            pipe.send((result, error))
