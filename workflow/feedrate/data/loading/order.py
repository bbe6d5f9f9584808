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

    def __init__(self, rows: int, seed: int, *, numbered: bool, a_step: int = 1) -> None:
        """`numbered`: the dataset must know a sample's epoch (see `shuffled`). What is left of an
        epoch after whole steps of `a_step` samples is left out."""
        self._rows, self._seed, self._numbered = rows, seed, numbered
        self._taken = rows // a_step * a_step
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """The epoch that comes next; without a word they follow one another."""
        self._epoch = epoch

    def __len__(self) -> int:
        """Samples of an epoch."""
        return self._taken

    def __iter__(self) -> Iterator[int]:
        """One epoch."""
        epoch = self._epoch
        order = shuffled(self._rows, self._seed, epoch, numbered=self._numbered)
        yield from order[: self._taken]
        self._epoch = epoch + 1
