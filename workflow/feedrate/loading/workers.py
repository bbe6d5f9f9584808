"""A loader's workers: how they start, how many there may be, and the end of one that hangs.

Python cannot interrupt a call into a driver, so a thread watches the clock. Its error reaches
`threading.excepthook` (`end_process_on_hang`), and the process exits without waiting for threads.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from time import monotonic
from typing import Any, TypeVar

import torch

from feedrate.config.settings import LoaderSettings
from feedrate.config.spec import loader_faults
from feedrate.core.processes import die_with_parent
from feedrate.devices.base import UnsupportedError
from feedrate.devices.host import cores_granted
from feedrate.loading.stages import Recorder

Item = TypeVar("Item")


def check_workers(settings: LoaderSettings, cores: int) -> None:
    """Raise UnsupportedError for settings that contradict each other, and for more worker processes
    (`decode: device` has none) than the rank's `cores`, unless `loader.oversubscribe` allows it."""
    for fault in loader_faults(settings):
        raise UnsupportedError(fault)
    processes = 0 if settings.decode == "device" else settings.workers
    if processes > max(1, cores) and not settings.oversubscribe:
        raise UnsupportedError(
            f"loader.workers: {processes} workers, but each rank has {cores} "
            f"core{'s' * (cores != 1)}; ask for fewer, give the job more cores, or set "
            "loader.oversubscribe: true"
        )


def worker_threads(settings: LoaderSettings, cores: int) -> int:
    """Threads of a worker: as set, but all workers together have at most as many as the cores."""
    return max(1, min(settings.threads_per_worker, cores // max(1, settings.workers)))


def start_worker(
    worker: int,
    then: Callable[[int], None] | None = None,
    threads: int = 1,
    recorder: Recorder | None = None,
) -> None:
    """The loaders' `worker_init_fn`: few threads, and no worker outlives its rank. Times by
    stage go to `recorder`; `then`, the Trainer's own seeding, is called last."""
    die_with_parent()
    # More threads would compete for the rank's cores, and a pool forked after use can hang.
    torch.set_num_threads(threads)
    if recorder:
        recorder.attach(worker + 1)
    if then is not None:
        then(worker)


def equip(loader: Any, settings: LoaderSettings) -> Any:
    """Give a loader our worker start-up."""
    inner = getattr(loader, "base_dataloader", loader)  # accelerate wraps the one that iterates
    if settings.workers:
        inner.worker_init_fn = partial(
            start_worker,
            then=inner.worker_init_fn,
            threads=worker_threads(settings, cores_granted()),
            recorder=getattr(inner.dataset, "recorder", None),
        )
        inner.timeout = settings.timeout_s
        inner.multiprocessing_context = settings.start_method
    return loader


class HungError(Exception):
    """A decoder hangs; the message names it and the time limit."""


def watched(items: Iterator[Item], timeout_s: float, what: str) -> Iterator[Item]:
    """The same items. If one takes longer than `timeout_s`, a thread raises HungError, which names
    `what`. Only the time that the caller waits for an item counts."""
    deadline_s, over = inf, threading.Event()

    def look() -> None:
        while not over.wait(min(1.0, timeout_s / 4)):
            if monotonic() > deadline_s:
                raise HungError(
                    f"{what} hangs: it made no batch within {timeout_s:g} s (loader.timeout_s)"
                )

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
