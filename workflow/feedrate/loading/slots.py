"""Reused memory for batches, and the first batch, which all workers of a loader fill together."""

import itertools
import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from time import sleep
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

    first: "FirstBatch | None" = None
    """The workers fill the first batch together, if there are several."""

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


Write = Callable[[torch.Tensor, int], None]
"""Writes a sample's pixels: their place, and the sample's number."""
WRITTEN, OPEN, BEGUN, FAILED = range(4)
"""States of a row of the first batch."""
POLL_S = 2e-4
"""How often the worker that offered rows looks whether the others have written theirs."""


class FirstBatch:
    """The first batch of an epoch, or of workers that outlive it, which is ready early. The first
    worker offers its rows, and each other worker writes open ones before it goes on with a batch of
    its own. Later batches have one worker each: sharing makes workers wait."""

    def __init__(self, slots: Slots, lock: AbstractContextManager[Any]) -> None:
        """`slots` are those of the pixels; `lock` is one that all workers have."""
        self._batches, self._lock = slots.batches, lock
        self._table = torch.zeros((1 + slots.batches.shape[1], 2), dtype=torch.int64)
        """Epoch and slot; then each row's state and its sample's number."""
        if slots.batches.is_shared():
            self._table.share_memory_()

    def fill(self, room: torch.Tensor, numbers: Sequence[int], write: Write) -> bool:
        """Fill `room` if it is the first batch's slot; return whether it is. Raises row errors."""
        info = get_worker_info()
        slot = (room.data_ptr() - self._batches.data_ptr()) // self._batches[0].nbytes
        with self._lock:
            begun = self._table[0, 0] == _epoch()
            if (info and info.id) or begun or not 0 <= slot < len(self._batches):
                return False
            self._table[0] = torch.tensor([_epoch(), slot])
            self._table[1 : 1 + len(numbers), 1] = torch.tensor(numbers)
            self._states[:] = [OPEN] * len(numbers) + [WRITTEN] * (len(self._states) - len(numbers))
        self.help(write)
        while BEGUN in self._states:  # without the lock: an old state only costs another look
            sleep(POLL_S)
        for row in np.flatnonzero(self._states == FAILED).tolist():
            write(room[row], numbers[row])
        return True

    def help(self, write: Write) -> None:
        """Write rows of the first batch until none is open."""
        epoch = _epoch()
        while OPEN in self._states:
            with self._lock:
                row = int((self._states == OPEN).argmax())
                if self._states[row] != OPEN or self._table[0, 0] != epoch:
                    return
                self._states[row] = BEGUN
                slot, number = int(self._table[0, 1]), int(self._table[1 + row, 1])
            state = WRITTEN
            try:
                write(self._batches[slot, row], number)
            except Exception:  # the worker that offered the row tries again, and raises it
                state = FAILED
            with self._lock:
                if self._table[0, 0] == epoch:
                    self._states[row] = state

    @property
    def _states(self) -> np.ndarray[Any, Any]:
        return self._table[1:, 0].numpy()


def _epoch() -> int:
    """A number that all worker processes of an epoch have, and no others."""
    info = get_worker_info()
    return info.seed - info.id if info else 1
