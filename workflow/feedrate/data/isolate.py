"""Work on untrusted input in other processes: a crash or a hang costs one item, not the run."""

import multiprocessing
import resource
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

MEMORY_BYTES = 2 * 2**30
"""Address space that a worker may take beyond what it has after its imports."""

_READY = "ready"


class Lost(NamedTuple):
    """An item without a result: its process crashed or took too long."""

    reason: str


def run_isolated(
    task: Callable[[Item], Result], items: Sequence[Item], workers: int, timeout_s: float
) -> list[Result | Lost]:
    """`task` of every item, in order, on `workers` fresh processes.

    An exception of `task` is raised here. A process that dies or works on one item for longer than
    `timeout_s` is replaced, and the item is Lost. All processes are gone when this returns.
    """
    results: list[Any] = [None] * len(items)
    waiting = iter(range(len(items)))
    team = [_Worker(task) for _ in range(min(workers, len(items)))]
    missing = len(items)
    try:
        while missing:
            deadline = min((w.deadline for w in team), default=0.0)
            patience = max(0.0, deadline - time.monotonic())
            ready = wait([w.connection for w in team], timeout=min(patience, 60.0))
            for worker in list(team):
                if worker.connection in ready:
                    outcome = worker.receive()
                elif time.monotonic() > worker.deadline:
                    outcome = Lost(f"it took longer than {timeout_s:g} s")
                else:
                    continue
                if worker.item is not None:
                    results[worker.item] = outcome
                    missing -= 1
                if isinstance(outcome, Lost):
                    worker.stop()
                    team[team.index(worker)] = _Worker(task)
                else:
                    worker.give(next(waiting, None), items, timeout_s)
    finally:
        for worker in team:
            worker.stop()
    return results


class _Worker:
    """One process, and the item that it works on."""

    def __init__(self, task: Callable[[Any], Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.item: int | None = None
        self.deadline = float("inf")
        self._process = context.Process(target=_serve, args=(task, theirs), daemon=True)
        # Ctrl-C is the parent's, which then ends this one; a blocked signal is inherited.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        theirs.close()

    def give(self, item: int | None, items: Sequence[Any], timeout_s: float) -> None:
        """Hand over the next item, if there is one."""
        self.item = item
        self.deadline = float("inf")
        if item is not None:
            self.deadline = time.monotonic() + timeout_s
            with suppress(BrokenPipeError):  # it died meanwhile: `receive` tells
                self.connection.send(items[item])

    def receive(self) -> Any:
        """What the process sent: a result, or Lost when it died. Raises what `task` raised."""
        try:
            kind, value = self.connection.recv()
        except (EOFError, OSError):
            self._process.join()
            if self.item is None:
                raise RuntimeError(
                    f"a worker process ended with exit code {self._process.exitcode} at its start"
                ) from None
            return Lost(f"reading it ended the process ({_ending(self._process.exitcode)})")
        if kind == "error":
            raise value
        return value

    def stop(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.join()
        self.connection.close()


def _serve(task: Callable[[Any], Any], connection: Connection) -> None:
    """The process's life: an item in, a result out, until the pipe is closed."""
    _limit_memory()
    with suppress(EOFError, OSError):  # the parent is gone
        connection.send(("result", _READY))
        while True:
            item = connection.recv()
            try:
                answer = ("result", task(item))
            except Exception as error:
                answer = ("error", error)
            connection.send(answer)


def _limit_memory() -> None:
    """Make an allocation beyond the bound a MemoryError, where the system can count and limit."""
    with suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY_BYTES
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard == resource.RLIM_INFINITY or limit < hard:
            resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _ending(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"signal {signal.Signals(-exit_code).name}"
    return f"exit code {exit_code}"
