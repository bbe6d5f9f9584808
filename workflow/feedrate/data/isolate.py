"""Work on untrusted input in other processes: a crash or a hang loses one item, not the run.

Each worker has its own pipe and at most one item, so a crash is attributed to the right item. Pools
whose workers share a queue, such as Pebble's, sometimes name another item or stop altogether.
"""

import multiprocessing
import resource
import signal
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from feedrate.core.processes import die_with_parent

Item = TypeVar("Item")
Result = TypeVar("Result")

MEMORY_BYTES = 2 * 2**30
"""Address space that a worker may use in addition to that of its imports."""


class Lost(NamedTuple):
    """An item without a result: the reason, such as a crash of its process."""

    reason: str


def run_isolated(
    task: Callable[[Item], Result], items: Sequence[Item], workers: int, timeout_s: float
) -> list[Result | Lost]:
    """Compute `task` of every item in `workers` new processes; return the results in order.

    Raises what `task` raises. The item of a process that dies, or takes longer than `timeout_s` for
    it, is Lost; while items are waiting, the process is replaced. None is left at the end.
    """
    results: list[Any] = [None] * len(items)
    waiting = deque(range(len(items)))
    team = [_Worker(task, timeout_s) for _ in range(min(workers, len(items)))]
    missing = len(items)
    try:
        while missing:
            ready = wait([worker.connection for worker in team])
            for worker in [one for one in team if one.connection in ready]:
                outcome = worker.receive()
                if worker.item is not None:
                    results[worker.item] = outcome
                    missing -= 1
                if worker.usable:
                    worker.give(waiting.popleft() if waiting else None, items)
                else:
                    worker.stop()
                    team.remove(worker)
                    team += [_Worker(task, timeout_s)] if waiting else []
    finally:
        for worker in team:
            worker.stop()
    return results


class _Worker:
    """A process and the index of the item that it works on, None while it starts or is idle."""

    def __init__(self, task: Callable[[Any], Any], timeout_s: float) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.item: int | None = None
        self.usable = True
        self._timeout_s = timeout_s
        self._process = context.Process(target=_serve, args=(task, timeout_s, theirs), daemon=True)
        # The process inherits the blocked signal, so Ctrl-C reaches the parent, which stops it.
        # Starting the tracker unblocks the signal (CPython 3.11 to 3.13), so it starts before.
        resource_tracker.ensure_running()
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        theirs.close()

    def give(self, item: int | None, items: Sequence[Any]) -> None:
        """Send the next item, if there is one."""
        self.item = item
        if item is not None:
            with suppress(BrokenPipeError):  # it has died; `receive` reports that
                self.connection.send(items[item])

    def receive(self) -> Any:
        """Return the task's result, or Lost if the process died. Raises what `task` raised."""
        try:
            result, error = self.connection.recv()
        except (EOFError, OSError):
            self._process.join()
            self.usable = False
            code = self._process.exitcode or 0
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            if self.item is None:
                raise RuntimeError(f"a worker process ended as it started ({how})") from None
            if code == -signal.SIGALRM:
                return Lost(f"it took longer than {self._timeout_s:g} s")
            return Lost(f"reading it ended the process ({how})")
        if error is not None:
            raise error
        return result

    def stop(self) -> None:
        """Kill the process, even if it hangs."""
        self._process.kill()
        self._process.join()
        self.connection.close()


def _serve(task: Callable[[Any], Any], timeout_s: float, connection: Connection) -> None:
    """Run `task` on the items from the pipe, in a worker process, until the parent is gone. If one
    takes too long, the alarm ends the process, also in a decoder that never returns."""
    die_with_parent()
    _limit_memory()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with suppress(EOFError, OSError):
        connection.send((None, None))  # ready
        while True:
            item = connection.recv()
            signal.setitimer(signal.ITIMER_REAL, timeout_s)
            try:
                result, error = task(item), None
            except Exception as raised:
                result, error = None, raised
            signal.setitimer(signal.ITIMER_REAL, 0)
            connection.send((result, error))


def _limit_memory() -> None:
    """Make an allocation above the limit raise MemoryError, if the system supports this."""
    with suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY_BYTES
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard == resource.RLIM_INFINITY or limit < hard:
            resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
