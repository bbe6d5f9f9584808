"""Ends a process whose decoder on a device never returns.

Python cannot interrupt a call into a driver, so a thread watches the clock. What that thread raises
reaches the process through `threading.excepthook`, which `end_process_on_hang` sets: it reports the
cause, and the process exits without waiting for any thread.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from math import inf
from time import monotonic
from typing import Any, TypeVar

LOOKS = 4
"""How often the clock is read within the time limit; at least once a second."""

Item = TypeVar("Item")


class HungError(Exception):
    """Something hangs; the message says what, and how long the process waited for it."""


def watched(items: Iterator[Item], timeout_s: float, what: str) -> Iterator[Item]:
    """The same items. If one takes longer than `timeout_s`, a thread raises HungError, which names
    `what`. Time in which nobody asks for an item does not count."""
    watch = _Watch(timeout_s, what)
    try:
        while True:
            watch.deadline_s = monotonic() + timeout_s
            try:
                item = next(items)
            except StopIteration:
                return
            watch.deadline_s = inf
            yield item
    finally:
        watch.over.set()


class _Watch:
    """A thread that reads the clock until `over` is set."""

    def __init__(self, timeout_s: float, what: str) -> None:
        self.deadline_s = inf
        self.over = threading.Event()
        self._timeout_s, self._what = timeout_s, what
        threading.Thread(target=self._look, name="watch", daemon=True).start()

    def _look(self) -> None:
        while not self.over.wait(min(1.0, self._timeout_s / LOOKS)):
            if monotonic() > self.deadline_s:
                raise HungError(
                    f"{self._what} hangs: it made no batch within {self._timeout_s:g} s "
                    "(loader.timeout_s)"
                )


def end_process_on_hang(report: Callable[[HungError], None]) -> None:
    """From now on a HungError in any thread is reported and ends this process with exit code 1."""
    usual = threading.excepthook

    def hook(arguments: Any) -> None:
        if not isinstance(arguments.exc_value, HungError):
            usual(arguments)
            return
        try:
            report(arguments.exc_value)
            sys.stderr.flush()
        finally:
            os._exit(1)  # an orderly exit would wait for the thread that hangs

    threading.excepthook = hook
