"""Reused memory for batches."""

import itertools
import os
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from feedrate.config.values import size_text
from feedrate.devices.base import UnsupportedError

FREE, TAKEN = 0, 1
_numbers = itertools.count()
_BY_NAME: "weakref.WeakValueDictionary[str, Slots]" = weakref.WeakValueDictionary()
"""The slots of this process's loaders, by the names that workers send."""


class Slots:
    """Reused memory for batches of one shape, shared between the workers and their rank. A batch of
    48 pictures of 294 px costs 14 ms of page faults in new shared memory, 1 ms in a used slot. A
    worker sends a slot's number; the rank frees it when no tensor refers to it any more."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, workers: int, each: int) -> None:
        """Reserve `each` slots for each worker (without workers, for the rank itself); `shape` is
        that of a full batch. Raises UnsupportedError if the host lacks the shared memory."""
        count = max(1, workers) * each
        self._each = each
        size = count * int(np.prod(shape)) * dtype.itemsize
        try:  # reserved without writing to it; moving a tensor there would write
            storage = torch.UntypedStorage._new_shared(size) if workers else None
        except RuntimeError as error:
            needs = f"batches of {workers} workers need {size_text(size)} of shared memory"
            more = "give the container more (docker: --shm-size), or use fewer workers or a smaller"
            why = f"{needs}, more than /dev/shm has; {more} loader.prefetch_factor"
            raise UnsupportedError(f"loader.workers: {why}") from error
        storage = storage or torch.UntypedStorage(size)
        self.batches = torch.empty(0, dtype=dtype).set_(storage, 0, (count, *shape))  # type: ignore[call-overload]
        self.states = torch.zeros(count, dtype=torch.uint8)
        if workers:
            self.states.share_memory_()
        self.name = f"{os.getpid()}/{next(_numbers)}"
        _BY_NAME[self.name] = self

    def take(self, rows: int) -> "torch.Tensor | Filling":
        """Memory for a batch of `rows`: a free slot (in a worker a Filling), or a new tensor."""
        info = get_worker_info()
        # Each worker takes only its own slots, and only the rank frees them: no lock is needed.
        first = (info.id if info else 0) * self._each
        for slot in range(first, first + self._each):
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
    return _BY_NAME[name].open(slot, rows)
