"""What a loading path is: one way from the rows of a dataset to batches for the model."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Protocol

from feedrate.config.settings import Decode
from feedrate.loading.dataset import PairDataset

Batch = dict[str, Any]
"""Tensors by the names of the model's arguments, and `return_loss`."""
HELD_BATCHES = 3
"""Batches that a rank holds at a time: the one in use, the next one, which accelerate asks for
before, and the one on its way."""
Done = Callable[[int], int]
"""Of the epoch's batches (their number is the argument), how many were trained on before."""


class Order(Protocol):
    """The row numbers of one batch after the other."""

    batch_size: int

    def __iter__(self) -> Iterator[list[int]]: ...


def none_done(batches: int) -> int:  # noqa: ARG001
    """Every epoch starts with its first batch."""
    return 0


class LoadingPath(ABC):
    """How all loaders of a run get their batches; made by `registry.open_path`."""

    decode: Decode
    """The level, told by what makes the batches; the `data` event states it."""
    skips: ClassVar[bool]
    """Whether its loaders skip what a resumed run has done; else the Trainer must."""
    round_size: int
    """Batches that may be ready before anyone asks for them."""

    @abstractmethod
    def adopt(self, loader: Any, done: Done = none_done) -> Any:
        """A loader as the Trainer prepared it, made to take this path.

        Order, shards, seeds and what is dropped stay the Trainer's: all paths give the same
        samples in the same order.
        """

    @abstractmethod
    def batches(self, dataset: PairDataset, order: Order) -> Iterator[Batch]:
        """Batches of `dataset` in `order`, without a Trainer; whatever this starts ends with it."""
