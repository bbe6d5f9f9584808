"""Where a row's pixels come from on the host: one reader for each level of decoding."""

from pathlib import Path
from typing import Protocol

import torch

from feedrate.config.settings import LoaderSettings
from feedrate.data.loading.augment import Draw
from feedrate.data.loading.fast_pixels import read_pixels
from feedrate.data.loading.pixels import crop_centre, cut, decode, resize, resize_to
from feedrate.data.loading.store import Store


class Reader(Protocol):
    """The crop of a row's picture."""

    def __call__(self, row: int, draw: Draw) -> torch.Tensor:
        """(1 or 3, side, side) uint8, or (3, side, side) float32 in 0 to 1. Flips and colours of
        `draw` are not done yet. Raises DataError naming a file that cannot be decoded."""
        ...


class ReadReference:
    """As in the published script: float32 at full size."""

    def __init__(self, paths: list[Path], side_px: int) -> None:
        self._paths, self._side_px = paths, side_px

    def __call__(self, row: int, draw: Draw) -> torch.Tensor:
        """(3, side, side) float32."""
        return crop(decode(self._paths[row]), self._side_px, draw)


class ReadHost:
    """uint8 all the way."""

    def __init__(self, paths: list[Path], side_px: int, *, scaled: bool) -> None:
        self._paths, self._side_px, self._scaled = paths, side_px, scaled

    def __call__(self, row: int, draw: Draw) -> torch.Tensor:
        """(1 or 3, side, side) uint8."""
        return read_pixels(self._paths[row], self._side_px, draw, scaled=self._scaled)


class ReadStore:
    """What preprocessing decoded."""

    def __init__(self, store: Store, side_px: int) -> None:
        self._store, self._side_px = store, side_px

    def __call__(self, row: int, draw: Draw) -> torch.Tensor:
        """(1 or 3, side, side) uint8; without a random crop a view of the file's pages."""
        return self._store.read(row, self._side_px, draw)


def crop(pixels: torch.Tensor, side_px: int, draw: Draw) -> torch.Tensor:
    """The random crop of (c, h, w), or its centre, at `side_px` x `side_px`."""
    box = draw.box(*pixels.shape[-2:])
    if box:
        return resize_to(cut(pixels, *box), [side_px, side_px])
    return crop_centre(resize(pixels, side_px), side_px)


def open_reader(
    loader: LoaderSettings, paths: list[Path], side_px: int, store: Store | None
) -> Reader:
    """The reader of a level; what a device decodes is read as on `host` where the host wants it."""
    if loader.decode == "reference":
        return ReadReference(paths, side_px)
    if loader.decode == "cache" and store is not None:
        return ReadStore(store, side_px)
    return ReadHost(paths, side_px, scaled=loader.scaled_decode)
