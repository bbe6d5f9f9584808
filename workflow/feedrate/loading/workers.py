"""A loader's workers: their number, their start, memory for their batches, the end of a hang.

Python cannot interrupt a call into a driver, so a thread watches the clock. Its error reaches
`threading.excepthook` (`end_process_on_hang`), and the process exits without waiting for threads.
"""

import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from time import monotonic
from typing import Any, TypeVar

import torch
from torch.utils.data import get_worker_info

from feedrate.config.settings import LoaderSettings
from feedrate.config.spec import loader_faults
from feedrate.core.processes import die_with_parent
from feedrate.devices.base import UnsupportedError
from feedrate.loading.dataset import PairDataset, Slots
from feedrate.loading.decoders import constant_of
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
            f"loader.workers: {processes} workers, but each rank has {cores} core(s); "
            "ask for fewer, give the job more cores, or set loader.oversubscribe: true"
        )


def start_worker(
    worker: int,
    seed: Callable[[int], None] | None = None,
    slots: dict[str, Slots] | None = None,
    recorder: Recorder | None = None,
) -> None:
    """The loaders' `worker_init_fn`: one thread, and no worker outlives its rank. Batches go to
    `slots`, times by stage to `recorder`; `seed`, the Trainer's own, is called last."""
    die_with_parent()
    # More threads would compete for the rank's cores, and a pool forked after use can hang.
    torch.set_num_threads(1)
    info = get_worker_info()
    if info is not None and isinstance(info.dataset, PairDataset):
        info.dataset.slots = slots
    if recorder:
        recorder.attach(worker + 1)
    if seed is not None:
        seed(worker)


def equip(loader: Any, settings: LoaderSettings, *, held_batches: int) -> Any:
    """Give a loader our worker start-up and reused memory for batches; the rank holds so many at a
    time. Raises UnsupportedError if the host lacks the shared memory."""
    inner = getattr(loader, "base_dataloader", loader)  # accelerate wraps the one that iterates
    dataset, workers, slots = inner.dataset, settings.workers, None
    batch_size = getattr(inner.batch_sampler, "batch_size", None)
    in_batches = constant_of(settings.decode, "FETCH") == "batch"
    if isinstance(dataset, PairDataset) and batch_size and in_batches:
        # For all batches that can be on their way or in use at a time.
        per_worker = math.ceil(held_batches / max(1, workers))
        per_worker += settings.prefetch_factor + 1 if workers else 0
        slots = {
            name: Slots((batch_size, *shape), dtype, workers, per_worker)
            for name, (shape, dtype) in dataset.shapes().items()
            if workers or name == "pixel_values"  # new memory for tokens costs less than a slot
        }
    if workers:
        inner.worker_init_fn = partial(
            start_worker,
            seed=inner.worker_init_fn,
            slots=slots,
            recorder=getattr(dataset, "recorder", None),
        )
        inner.timeout = settings.timeout_s
        inner.multiprocessing_context = settings.start_method
    elif slots is not None:
        dataset.slots = slots
    return loader


class HangError(Exception):
    """A decoder hangs; the message names it and the time limit."""


def raise_on_hang(batches: Iterator[Item], timeout_s: float, maker: str) -> Iterator[Item]:
    """The same batches. If one takes longer than `timeout_s`, a thread raises HangError, which
    names the `maker`. Only the time that the caller waits for a batch counts."""
    deadline_s, end = inf, threading.Event()

    def watch() -> None:
        while not end.wait(min(1.0, timeout_s / 4)):
            if monotonic() > deadline_s:
                limit = f"within {timeout_s:g} s (loader.timeout_s)"
                raise HangError(f"{maker} hangs: it made no batch {limit}")

    threading.Thread(target=watch, name="watch", daemon=True).start()
    try:
        deadline_s = monotonic() + timeout_s
        for batch in batches:
            deadline_s = inf
            yield batch
            deadline_s = monotonic() + timeout_s
    finally:
        end.set()


def end_process_on_hang(report: Callable[[HangError], None]) -> None:
    """From now on a HangError in any thread is reported and ends this process with exit code 1."""
    former_hook = threading.excepthook

    def hook(arguments: Any) -> None:
        if not isinstance(arguments.exc_value, HangError):
            former_hook(arguments)
            return
        try:
            report(arguments.exc_value)
            sys.stderr.flush()
        finally:
            os._exit(1)  # an orderly exit would wait for the thread that hangs

    threading.excepthook = hook
