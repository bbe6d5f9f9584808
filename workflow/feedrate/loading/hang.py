"""What never comes back, where nothing can interrupt it: a decoder on a device.

A call into a driver cannot be broken off from Python, so a thread beside it watches the clock. What
that thread raises reaches the process through `threading.excepthook`, which `ends_the_process`
sets: the cause is told, and the process leaves without waiting for anybody.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from math import inf
from time import monotonic
from typing import Any, TypeVar

LOOKS = 4
"""Looks at the clock within the time allowed; at least one a second."""

Item = TypeVar("Item")


class HungError(Exception):
    """Something hangs; the message says what, and for how long it was waited for."""


def watched(items: Iterator[Item], timeout_s: float, what: str) -> Iterator[Item]:
    """The same items. Where one takes longer than `timeout_s`, a thread raises HungError, which
    names `what`; the time in which nobody asks for an item does not count."""
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
    """A thread that looks at the clock until it is over."""

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


def ends_the_process(tell: Callable[[HungError], None]) -> None:
    """From now on a HungError of any thread is told, and ends this process with exit code 1."""
    usual = threading.excepthook

    def hook(arguments: Any) -> None:
        if not isinstance(arguments.exc_value, HungError):
            usual(arguments)
            return
        try:
            tell(arguments.exc_value)
            sys.stderr.flush()
        finally:
            os._exit(1)  # an orderly end would wait for the very thread that hangs

    threading.excepthook = hook
