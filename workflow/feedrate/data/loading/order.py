"""The order of the samples: a function of seed and epoch alone."""

from collections.abc import Iterator

import torch
from torch.utils.data import Sampler


def shuffled(rows: int, seed: int, epoch: int, *, numbered: bool) -> list[int]:
    """The samples of an epoch, each once: its row or, `numbered`, epoch * rows + row.

    Such a number tells a worker the epoch too, whenever the worker was started.
    """
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(rows, generator=generator)
    return (order + epoch * rows if numbered else order).tolist()


class EpochOrder(Sampler[int]):
    """All rows in a new order each epoch; the Trainer shares the batches out to its ranks."""

    def __init__(self, rows: int, seed: int, *, numbered: bool) -> None:
        """`numbered`: the dataset must know a sample's epoch (see `shuffled`)."""
        self._rows, self._seed, self._numbered = rows, seed, numbered
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """The epoch that comes next; without a word they follow one another."""
        self._epoch = epoch

    def __len__(self) -> int:
        """Samples of an epoch."""
        return self._rows

    def __iter__(self) -> Iterator[int]:
        """One epoch."""
        epoch = self._epoch
        yield from shuffled(self._rows, self._seed, epoch, numbered=self._numbered)
        self._epoch = epoch + 1
