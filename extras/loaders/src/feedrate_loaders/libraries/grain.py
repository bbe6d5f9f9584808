"""Grain of Google: lazy datasets read by threads, https://github.com/google/grain."""

import sys
import threading
from collections.abc import Iterator

from grain import MapDataset, ReadOptions

from feedrate_loaders.libraries._feed import Made, Work

PACKAGES = ("grain",)
INSTALL = "pip install --no-deps -r extras/loaders/requirements/grain.lock"
FORMS = {"same": ("reference", "host", "cache")}
LEAST_WORKERS = 1


class Batches:
    """The numbers of each batch by its position, as Grain asks for them."""

    def __init__(self, work: Work) -> None:
        self._order, self._length = iter(work.order), work.length
        self._known: list[list[int]] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Batches; an order without an end is longer than any run."""
        return sys.maxsize if self._length is None else self._length

    def __getitem__(self, position: int) -> list[int]:
        with self._lock:
            while position >= len(self._known):
                self._known.append(next(self._order))
            return self._known[position]


def same(work: Work) -> Iterator[Made]:
    """Each thread makes a batch with the run's decode function."""
    options = ReadOptions(num_threads=work.workers, prefetch_buffer_size=work.ahead)
    yield from MapDataset.source(Batches(work)).map(work.make).to_iter_dataset(options)
