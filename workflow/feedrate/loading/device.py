"""`decode: device`: what all device decoders share; each kind has its own `Decoder`.

The Trainer's loader keeps its order and its shards, but its batches come from the decoder.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, Dataset

from feedrate.devices.base import UnsupportedError
from feedrate.loading.dataset import PairDataset
from feedrate.loading.hang import watched
from feedrate.loading.path import Batch, Done, LoadingPath, Order, none_done


class Decoder(Protocol):
    """Decodes a dataset's images on the device. No two loaders share one."""

    def batches(self, order: Iterable[list[int]]) -> Iterator[Batch]:
        """One epoch: the batches of these rows, in this order, on the device.

        The tensors are the caller's: a later batch does not change them. They have the shapes and
        types of `pairs.collate`. A batch may be smaller than the size that the decoder was made
        for, never larger. An `order` without a length has no end.
        """
        ...


DecoderFactory = Callable[[PairDataset, int], Decoder]
"""Makes a decoder for a dataset and the size of its largest batch."""


class DevicePath(LoadingPath):
    """Encoded images go to the device, which decodes them; there is no way back to the host's."""

    decode = "device"
    skips = True

    def __init__(
        self, make_decoder: DecoderFactory, *, ready_batches: int, timeout_s: float
    ) -> None:
        """`ready_batches`: as many does a decoder prepare ahead; one that makes none for
        `timeout_s` hangs, which ends the process."""
        self.round_size = ready_batches
        self._make = make_decoder
        self._timeout_s = timeout_s

    def adopt(self, loader: Any, done: Done = none_done) -> Any:
        """The Trainer's loader with its inner one replaced.

        What it does around batches stays: the seed of each epoch, and what evaluation must know of
        the last batch. Raises UnsupportedError where it is not built as expected, since it would
        then go on decoding on the host.
        """
        if not isinstance(getattr(loader, "base_dataloader", None), DataLoader):
            raise UnsupportedError(
                "loader.decode: device: the Trainer's loader is not one of accelerate's "
                "(it has no base_dataloader), so the device cannot take its place; use host"
            )
        decoder = self._make_decoder(loader.dataset, loader.batch_sampler.batch_size)
        loader.base_dataloader = DeviceLoader(loader, decoder, done)
        return loader

    def batches(self, dataset: PairDataset, order: Order) -> Iterator[Batch]:
        """Batches on the device, from a decoder of their own."""
        yield from self._make_decoder(dataset, order.batch_size).batches(order)

    def _make_decoder(self, dataset: PairDataset, batch_size: int) -> Decoder:
        return Watched(self._make(dataset, batch_size), self._timeout_s)


class Watched:
    """A decoder that cannot hang for ever."""

    def __init__(self, decoder: Decoder, timeout_s: float) -> None:
        self._decoder, self._timeout_s = decoder, timeout_s

    def batches(self, order: Iterable[list[int]]) -> Iterator[Batch]:
        """The decoder's batches."""
        what = "loader.decode: device: the decoder on the device"
        return watched(self._decoder.batches(order), self._timeout_s, what)


class DeviceLoader(DataLoader[Any]):
    """Batches on the device, in the order of the loader whose place it takes."""

    def __init__(self, replaced: DataLoader[Any], decoder: Decoder, done: Done) -> None:
        super().__init__(Undecoded(replaced.dataset), batch_sampler=replaced.batch_sampler)
        self._decoder = decoder
        self._done = done

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        """One epoch, without what a resumed run has done of it."""
        order: list[list[int]] = list(self.batch_sampler)  # type: ignore[arg-type]  # one was given
        done = self._done(len(order))
        if not done:
            # torch's own loaders draw a number here: so dropout is the same on all paths.
            torch.empty((), dtype=torch.int64).random_()
        return self._decoder.batches(order[done:])


class Undecoded(Dataset[Any]):
    """Rows that nobody can have from the host, so that no library falls back to it unseen."""

    def __init__(self, dataset: Any) -> None:
        self._rows = len(dataset)

    def __len__(self) -> int:
        """Rows of the dataset."""
        return self._rows

    def __getitem__(self, index: int) -> Any:
        """Raise UnsupportedError."""
        raise UnsupportedError(
            f"loader.decode: device: row {index} was asked for on the host, which must not decode; "
            "use host"
        )
