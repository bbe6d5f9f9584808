"""The registry of loading paths: what `loader.decode` means on each kind of device."""

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader

from feedrate.config.settings import LoaderSettings
from feedrate.config.spec import Kind
from feedrate.devices.base import Adapter, UnsupportedError
from feedrate.loading.augment import NOTHING, Augmentation
from feedrate.loading.dataset import PairDataset, collate
from feedrate.loading.device import DevicePath
from feedrate.loading.path import HELD_BATCHES, Batch, Done, LoadingPath, Order, none_done
from feedrate.loading.pixels import LEVELS
from feedrate.loading.readers import ReadReference
from feedrate.loading.workers import equip

# `decode: reference`, `host` and `cache`: the Trainer's own loader, whose workers make batches.


class HostPath(LoadingPath):
    """Batches come from worker processes or from the rank's own; the dataset reads the pixels."""

    skips = False

    def __init__(
        self, settings: LoaderSettings, *, pin_memory: bool, held_batches: int = HELD_BATCHES
    ) -> None:
        """`pin_memory`: batches lie in page-locked memory; `held_batches`: see `open_path`."""
        self.decode = settings.decode
        self.round_size = max(1, settings.workers)
        self._settings = settings
        self._pin_memory = pin_memory
        self._held_batches = held_batches

    def adopt(self, loader: Any, done: Done = none_done) -> Any:  # noqa: ARG002
        """The same loader, with our start of its workers and memory for its batches."""
        return equip(loader, self._settings, held=self._held_batches)

    def batches(self, dataset: PairDataset, order: Order) -> Iterator[Batch]:
        """Batches on the host, from as many workers as the settings say."""
        options: dict[str, Any] = {}
        if self._settings.workers:
            options["prefetch_factor"] = self._settings.prefetch_factor
        loader = DataLoader(
            dataset,
            batch_sampler=order,
            collate_fn=collate,
            num_workers=self._settings.workers,
            pin_memory=self._pin_memory,
            **options,
        )
        # A generator, so that the loader and its memory live as long as its batches come.
        yield from equip(loader, self._settings, held=self._held_batches)


def _gaudi(device: Adapter, loader: LoaderSettings) -> DevicePath:
    from feedrate.loading.decoders.gaudi import open_gaudi

    return open_gaudi(device, loader)


def _nvjpeg(device: Adapter, loader: LoaderSettings) -> DevicePath:
    from feedrate.loading.decoders.nvjpeg import open_nvjpeg

    return open_nvjpeg(device, loader)


DEVICE_DECODERS: dict[Kind, Callable[[Adapter, LoaderSettings], DevicePath]] = {
    "hpu": _gaudi,
    "cuda": _nvjpeg,
}
"""What opens `decode: device`, by kind; add a device decoder here. The software of one is imported
only where its kind is asked for."""


def open_path(
    device: Adapter, loader: LoaderSettings, *, held_batches: int = HELD_BATCHES
) -> LoadingPath:
    """The loading path of a run; what it needs beyond software starts with its first batch.

    A rank holds up to `held_batches` at a time. Raises UnsupportedError for a path that this
    device, or the software on this host, does not have; another is never taken.
    """
    if loader.decode == "reference" and loader.transfer == "uint8":
        raise UnsupportedError(
            "loader.transfer: uint8: decode: reference makes float32; use host or cache"
        )
    if loader.decode != "device":
        pin_memory = loader.pin_memory and device.kind != "cpu"
        return HostPath(loader, pin_memory=pin_memory, held_batches=held_batches)
    if device.kind not in DEVICE_DECODERS:
        raise UnsupportedError(
            f"loader.decode: device: a {device.kind} has no JPEG decoder; use host or cache"
        )
    return DEVICE_DECODERS[device.kind](device, loader)


def check_decode(device: Adapter, loader: LoaderSettings) -> None:
    """Raise UnsupportedError where `open_path` would, before a run does anything slow."""
    open_path(device, loader)


# How far a level's pixels are from the reference's: told beside every number that it makes.

PICTURES = 16
"""As many are compared, evenly chosen from the split; it takes about 0.2 s."""


class Distance(NamedTuple):
    """Over all pixels and channels of the pictures compared."""

    mean_abs_diff: float
    """In levels of 0 to 255. Rounding to levels and clipping overshoot alone give 0.2 to 0.35."""
    psnr_db: float | None
    """10 log10(255^2 / mean squared difference); None where nothing differs."""


class OneBatch:
    """The order that has these rows once."""

    def __init__(self, rows: list[int]) -> None:
        self.rows, self.batch_size = rows, len(rows)

    def __len__(self) -> int:
        """One."""
        return 1

    def __iter__(self) -> Iterator[list[int]]:
        """The batch."""
        yield self.rows


def distance(dataset: PairDataset, path: LoadingPath) -> Distance:
    """Of the path's pixels, without augmentation, to the reference's."""
    rows = list(range(0, len(dataset), max(1, len(dataset) // PICTURES)))[:PICTURES]
    reference = ReadReference(dataset.paths, dataset.image_px)
    wanted = torch.stack([reference(row, NOTHING) for row in rows]) * LEVELS
    off = (_levels(dataset, path, rows).double() - wanted.double()).abs()
    squared = float(off.square().mean())
    psnr = 10 * math.log10(LEVELS**2 / squared) if squared else None
    return Distance(float(off.mean()), psnr)


def _levels(dataset: PairDataset, path: LoadingPath, rows: list[int]) -> torch.Tensor:
    """What the path makes of these rows, in levels of 0 to 255; (rows, 3, h, w)."""
    if path.decode != "device":
        crops = [dataset.read(row, NOTHING).expand(dataset.shape) for row in rows]
        pixels = torch.stack(crops)
        return pixels if pixels.dtype == torch.uint8 else pixels * LEVELS
    unchanged = copy.copy(dataset)
    unchanged.augmentation = Augmentation(seed=0)
    (batch,) = path.batches(unchanged, OneBatch(rows))
    mean, std = (torch.tensor(value).view(3, 1, 1) for value in (dataset.mean, dataset.std))
    return (batch["pixel_values"].cpu() * std + mean) * LEVELS
