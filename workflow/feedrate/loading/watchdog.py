"""Ends a process whose decoder on a device never returns.

Python cannot interrupt a call into a driver, so a thread watches the clock. Its error reaches
`threading.excepthook` (`end_process_on_hang`), and the process exits without waiting for threads.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from math import inf
from time import monotonic
from typing import Any, TypeVar

LOOKS = 4
"""Checks of the clock within the time limit; there is at least one per second."""

Item = TypeVar("Item")


class HungError(Exception):
    """A decoder hangs; the message names it and the time limit."""


def watched(items: Iterator[Item], timeout_s: float, what: str) -> Iterator[Item]:
    """The same items. If one takes longer than `timeout_s`, a thread raises HungError, which names
    `what`. Only the time that the caller waits for an item counts."""
    deadline_s, over = inf, threading.Event()

    def look() -> None:
        while not over.wait(min(1.0, timeout_s / LOOKS)):
            if monotonic() > deadline_s:
                limit = f"{timeout_s:g} s (loader.timeout_s)"
                raise HungError(f"{what} hangs: it made no batch within {limit}")

    threading.Thread(target=look, name="watch", daemon=True).start()
    try:
        deadline_s = monotonic() + timeout_s
        for item in items:
            deadline_s = inf
            yield item
            deadline_s = monotonic() + timeout_s
    finally:
        over.set()


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
