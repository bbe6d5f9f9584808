"""A loader's workers: how they start, how many there may be, and the memory of their batches."""

import itertools
import math
import os
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from feedrate.config.settings import LoaderSettings
from feedrate.config.spec import loader_faults
from feedrate.core.processes import die_with_parent
from feedrate.devices.base import UnsupportedError
from feedrate.devices.host import cores_granted
from feedrate.loading.dataset import PairDataset
from feedrate.loading.decoders import fetch_of


def check_workers(settings: LoaderSettings, cores: int) -> None:
    """Raise UnsupportedError for settings that contradict each other, and for more worker processes
    than a rank has `cores`, unless `loader.oversubscribe` allows it.

    With `decode: device` the workers are threads that wait for files, so any number is allowed.
    """
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
    """Threads of a worker: as set, but all workers together have no more than the cores."""
    return max(1, min(settings.threads_per_worker, cores // max(1, settings.workers)))


class WorkerStart:
    """`worker_init_fn` of the loaders: few threads per worker, and no worker outlives its rank."""

    def __init__(
        self,
        then: Callable[[int], None] | None = None,
        threads: int = 1,
        slots: "Slots | None" = None,
    ) -> None:
        """`then`, the Trainer's own seeding, is called last. Batches are written to `slots`."""
        self._then, self._threads, self.slots = then, threads, slots

    def __call__(self, worker: int) -> None:
        """Prepare the worker process."""
        die_with_parent()
        # More threads would compete for the rank's cores, and a pool forked after use can hang.
        torch.set_num_threads(self._threads)
        info = get_worker_info()
        if info is not None and isinstance(info.dataset, PairDataset):
            info.dataset.slots = self.slots
        if self._then is not None:
            self._then(worker)


def equip(loader: Any, settings: LoaderSettings, *, held: int) -> Any:
    """Give a loader, the Trainer's or another, our start of workers and reused memory for batches.

    The rank holds `held` batches at a time. Raises UnsupportedError if memory is too small.
    """
    inner = getattr(loader, "base_dataloader", loader)  # accelerate wraps the one that iterates
    slots = None
    dataset, size = inner.dataset, getattr(inner.batch_sampler, "batch_size", None)
    if isinstance(dataset, PairDataset) and size and fetch_of(settings) == "batch":
        slots = make_slots(dataset, size, settings, held)
    if settings.workers:
        threads = worker_threads(settings, cores_granted())
        inner.worker_init_fn = WorkerStart(inner.worker_init_fn, threads, slots)
        inner.timeout = settings.timeout_s
        inner.multiprocessing_context = settings.start_method
    elif slots is not None:
        dataset.slots = slots
    return loader


def make_slots(
    dataset: PairDataset, batch_size: int, settings: LoaderSettings, held: int
) -> "Slots":
    """As many slots as batches can be on their way or in use at a time.

    Raises UnsupportedError if the host lacks the shared memory.
    """
    workers = settings.workers
    each = settings.prefetch_factor + 1 if workers else 0
    each += math.ceil(held / max(1, workers))
    try:
        return Slots((batch_size, *dataset.shape), dataset.dtype, workers, each)
    except SharedMemoryError as error:
        raise UnsupportedError(
            f"loader.workers: batches of {workers} workers need {error} of shared memory, which "
            "/dev/shm has not; give the container more (docker: --shm-size), or use fewer workers "
            "or a smaller loader.prefetch_factor"
        ) from error


class SharedMemoryError(Exception):
    """The host lacks shared memory for the slots; the message says how much they need."""


FREE, TAKEN = 0, 1
_numbers = itertools.count()
_OPEN: "weakref.WeakValueDictionary[str, Slots]" = weakref.WeakValueDictionary()
"""The slots of this process's loaders, by the names that workers send."""


class Slots:
    """Reused memory for batches of one shape, shared between the workers and their rank.

    New shared memory costs a page fault every 4 KiB: 14 ms for a batch of 48 pictures of 294 px,
    but 1 ms in a slot that was used before. A worker fills a slot and sends its number. The rank
    frees the slot when the last tensor that refers to it is gone.
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, workers: int, each: int) -> None:
        """Reserve `each` slots for each worker (without workers, for the rank itself); `shape` is
        that of a full batch. Raises SharedMemoryError."""
        count = max(1, workers) * each
        self._each = each
        size = count * int(np.prod(shape)) * dtype.itemsize
        try:  # shared memory that is not written to, unlike that of a tensor that is moved there
            storage = torch.UntypedStorage._new_shared(size) if workers else None
        except RuntimeError as error:
            raise SharedMemoryError(f"{size / 2**20:,.0f} MiB") from error
        storage = storage or torch.UntypedStorage(size)
        self.batches = torch.empty(0, dtype=dtype).set_(storage, 0, (count, *shape))  # type: ignore[call-overload]
        self.states = torch.zeros(count, dtype=torch.uint8)
        if workers:
            self.states.share_memory_()
        self.name = f"{os.getpid()}/{next(_numbers)}"
        _OPEN[self.name] = self

    def take(self, rows: int) -> "torch.Tensor | Filling":
        """Memory for a batch of `rows`: a free slot, or else a new tensor. In a worker a slot is a
        Filling, which is sent once its tensor is filled."""
        info = get_worker_info()
        first = (info.id if info else 0) * self._each
        for slot in range(first, min(first + self._each, len(self.states))):
            if self.states[slot] == FREE and rows <= self.batches.shape[1]:
                self.states[slot] = TAKEN
                return Filling(self, slot, rows) if info else self.open(slot, rows)
        return self.batches.new_empty((rows, *self.batches.shape[2:]))

    def open(self, slot: int, rows: int) -> torch.Tensor:
        """The batch in a slot, which is free again when nothing refers to it any more."""
        view: np.ndarray[Any, Any] = self.batches[slot, :rows].numpy()
        # The tensor's storage holds this array until the storage ends.
        weakref.finalize(view, self.states.__setitem__, slot, FREE).atexit = False
        return torch.from_numpy(view)


class Filling:
    """A slot that a worker fills and sends: pickled as its number, it arrives as the tensor."""

    def __init__(self, slots: Slots, slot: int, rows: int) -> None:
        self.tensor = slots.batches[slot, :rows]
        self._sent = (slots.name, slot, rows)

    def __reduce__(self) -> tuple[Callable[..., torch.Tensor], tuple[str, int, int]]:
        return _open, self._sent


def _open(name: str, slot: int, rows: int) -> torch.Tensor:
    return _OPEN[name].open(slot, rows)
