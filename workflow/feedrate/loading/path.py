"""The loading paths: workers, a library or a device makes batches, in the Trainer's order."""

import importlib
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import torch
from torch.utils.data import BatchSampler, DataLoader

from feedrate.config.settings import Decode, LoaderSettings
from feedrate.config.spec import DECODERS, LIBRARIES, library_of
from feedrate.core import plugins
from feedrate.devices.base import Adapter, UnsupportedError
from feedrate.loading.dataset import PairDataset, collate
from feedrate.loading.decoders import decoder_of
from feedrate.loading.pixels import LEVELS, Batch, crop, decode
from feedrate.loading.workers import equip, raise_on_hang

HELD_BATCHES = 3  # this one, the next (accelerate requests it early), and one on its way
Feed = Callable[[Iterable[list[int]]], Iterator[Batch]]  # an epoch's batches, from their rows
Request = TypeVar("Request")
Result = TypeVar("Result")


class Order(Protocol):
    """The row numbers of one batch after the other."""

    batch_size: int

    def __iter__(self) -> Iterator[list[int]]: ...


class LoadingPath(ABC):
    """The source of all batches of a run."""

    decode: Decode  # the decode path that really runs, for the `data` event
    library, form = "torch", "same"
    """The package that makes the batches, with its version, and the form of `loader.form`."""
    by_torch: ClassVar[bool] = True  # torch's loader makes them: its processes can be stopped
    round_size: int  # batches that may be ready before they are requested

    @abstractmethod
    def wrap(self, loader: Any) -> Any:
        """The Trainer's loader on this path, with the same order. Raises UnsupportedError."""

    @abstractmethod
    def batches(self, dataset: PairDataset, order: Order) -> Generator[Batch]:
        """Batches of `dataset` in `order`, without a Trainer; everything it starts ends with it."""

    def read_levels(self, dataset: PairDataset, rows: list[int]) -> tuple[list[int], torch.Tensor]:
        """Pixels of `rows`, or of the rows it returns, (rows, 3, h, w), in levels of 0 to 255."""
        (batch,) = self.batches(dataset, BatchSampler(rows, len(rows), drop_last=False))
        return rows, levels(dataset, batch["pixel_values"])


class HostPath(LoadingPath):
    """Batches from worker processes, or from the rank's own; the dataset reads the pixels."""

    def __init__(
        self, settings: LoaderSettings, *, pin_memory: bool, held_batches: int = HELD_BATCHES
    ) -> None:
        """`pin_memory`: batches are in page-locked memory; `held_batches`: see `open_path`."""
        self.decode, self.round_size = settings.decode, max(1, settings.workers)
        self._settings, self._pin_memory = settings, pin_memory
        self._held_batches = held_batches

    def wrap(self, loader: Any) -> Any:
        """The same loader, with our worker start-up and reused memory for its batches."""
        return equip(loader, self._settings, held_batches=self._held_batches)

    def batches(self, dataset: PairDataset, order: Order) -> Generator[Batch]:
        """Batches on the host, from the number of workers in the settings."""
        workers = self._settings.workers
        loader = DataLoader(
            dataset,
            batch_sampler=order,
            collate_fn=collate,
            num_workers=workers,
            pin_memory=self._pin_memory,
            prefetch_factor=self._settings.prefetch_factor if workers else None,
        )
        # A generator, so that the loader and its memory live as long as its batches.
        yield from self.wrap(loader)

    def read_levels(self, dataset: PairDataset, rows: list[int]) -> tuple[list[int], torch.Tensor]:
        """The pixels of `rows`, read here and not normalised, which would round them."""
        pixels = torch.stack([dataset.read(row).expand(dataset.shape) for row in rows])
        return rows, pixels if pixels.dtype == torch.uint8 else pixels * LEVELS


class FeedPath(LoadingPath):
    """Something else than torch's loader makes the batches, in the order of the Trainer's."""

    by_torch = False
    setting: str  # the setting that chose it, for messages
    maker: str  # the part that hangs if it makes no batch for `timeout_s`; the process then ends
    timeout_s: float
    feed: Callable[[PairDataset, int], Feed]
    """Makes the batches of a dataset; the number is the size of the largest batch, in samples."""

    def wrap(self, loader: Any) -> Any:
        """The Trainer's loader, which seeds epochs and sees their ends, with another one inside."""
        if not isinstance(getattr(loader, "base_dataloader", None), DataLoader):
            raise UnsupportedError(
                f"{self.setting}: the Trainer's loader is not one of accelerate's (it has no "
                "base_dataloader), so nothing can replace it; use host"
            )
        feed = self._feed_with_limit(loader.dataset, loader.batch_sampler.batch_size)
        loader.base_dataloader = FeedLoader(loader, feed)
        return loader

    def batches(self, dataset: PairDataset, order: Order) -> Generator[Batch]:
        """Batches from a maker of their own."""
        yield from self._feed_with_limit(dataset, order.batch_size)(order)

    def _feed_with_limit(self, dataset: PairDataset, batch_size: int) -> Feed:
        feed = self.feed(dataset, batch_size)
        return lambda order: raise_on_hang(feed(order), self.timeout_s, self.maker)


def in_order(
    pool: ThreadPoolExecutor,
    make: Callable[[Request], Result],
    requests: Iterable[Request],
    ahead: int,
) -> Generator[Result]:
    """The results of `make` in order, `ahead` of them early. The pool ends with the generator."""
    waiting: deque[Future[Result]] = deque()
    try:
        for request in requests:
            waiting.append(pool.submit(make, request))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class DevicePath(FeedPath):
    """Batches from a decoder on the device; the host never decodes instead."""

    decode = "device"
    setting = "loader.decode: device"
    maker = f"{setting}: the decoder on the device"

    def __init__(self, feed: Callable[..., Feed], *, ready_batches: int, timeout_s: float) -> None:
        """`feed` makes a loader's decoder, which prepares `ready_batches` ahead. Its batches are on
        the device, have the form that `collate` gives, and are not changed by later ones."""
        self.feed, self.round_size, self.timeout_s = feed, ready_batches, timeout_s


class FeedLoader(DataLoader[Any]):
    """Batches that something else makes, in the order of the loader that it replaces."""

    def __init__(self, replaced: Any, feed: Feed) -> None:
        super().__init__(replaced.dataset, batch_sampler=replaced.batch_sampler)
        self._feed = feed

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        """One epoch."""
        order: list[list[int]] = list(self.batch_sampler)  # type: ignore[arg-type]  # one was given
        # torch's own loaders draw a number here. With it, dropout is the same on all paths.
        torch.empty((), dtype=torch.int64).random_()
        return self._feed(order)


def open_path(
    device: Adapter, loader: LoaderSettings, *, held_batches: int = HELD_BATCHES
) -> LoadingPath:
    """The loading path of a run; it takes resources with its first batch. A rank holds up to
    `held_batches` at a time. Raises UnsupportedError without a device or software for it: no other
    path replaces it."""
    on_device, library = loader.decode == "device", library_of(loader)
    if on_device and library and device.kind != "cuda":
        raise UnsupportedError(f"loader.decode: device: {library} needs an NVIDIA GPU; use host")
    pin_memory = loader.pin_memory and device.pins_memory and not on_device
    if library:
        if library not in plugins.names(LIBRARIES):
            reason = "this interpreter has no plug-in of that name"
            raise UnsupportedError(f"loader.library: {library}: {reason}")
        # By name: it is no part of the code of other runs.
        feed: Any = importlib.import_module(f"{plugins.home(LIBRARIES, library)}._feed")
        return feed.LibraryPath(loader, pin_memory=pin_memory)
    if not on_device:
        return HostPath(loader, pin_memory=pin_memory, held_batches=held_batches)
    decoder = decoder_of("device", device.kind)
    if decoder is None:
        reason = f"a {device.kind} has no JPEG decoder; use host or cache"
        raise UnsupportedError(f"loader.decode: device: {reason}")
    path: LoadingPath = plugins.load(DECODERS, decoder).open_path(device, loader)
    return path


PICTURES = 16  # that `distance` compares, evenly spaced in the split; this takes about 0.2 s


class Distance(NamedTuple):
    """Distance over all pixels and channels of the compared pictures."""

    mean_abs_diff: float  # in levels of 255; rounding and clipping overshoot add 0.2 to 0.35
    psnr_db: float | None  # 10 log10(255^2 / mean squared difference); None if nothing differs
    worst_abs_diff: float  # mean difference of the picture that differs most, in levels


def distance(dataset: PairDataset, path: LoadingPath) -> Distance:
    """Distance of the path's pixels from the pixels of `decode: reference`."""
    rows = list(range(0, len(dataset), max(1, len(dataset) // PICTURES)))[:PICTURES]
    rows, pixels = path.read_levels(dataset, rows)
    reference = [crop(decode(dataset.paths[row]), dataset.image_px) for row in rows]
    difference = (pixels.double() - (torch.stack(reference) * LEVELS).double()).abs()
    squared = float(difference.square().mean())
    psnr = 10 * math.log10(LEVELS**2 / squared) if squared else None
    return Distance(float(difference.mean()), psnr, float(difference.mean((1, 2, 3)).max()))


def levels(dataset: PairDataset, pixels: torch.Tensor) -> torch.Tensor:
    """Pixels for the transfer, in levels of 0 to 255; (rows, 3, h, w)."""
    if pixels.dtype == torch.uint8:
        return pixels
    mean, std = (torch.tensor(value).view(3, 1, 1) for value in (dataset.mean, dataset.std))
    return (pixels.cpu() * std + mean) * LEVELS
