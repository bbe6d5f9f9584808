"""Where a row's pixels come from on the host: one reader for each level of decoding."""

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from feedrate.config.settings import LoaderSettings
from feedrate.data.manifest import DataError
from feedrate.data.store import PICTURES, PIXELS, index_of
from feedrate.loading.augment import Draw
from feedrate.loading.pixels import (
    crop_centre,
    cut,
    decode,
    read_pixels,
    resize,
    resize_to,
    resized_size,
)

# Reads the store of the level `cache`: see `data/stored.py`.


class Store:
    """One split of a store, memory-mapped: workers and ranks share the pages."""

    def __init__(self, folder: Path, split: str) -> None:
        """Raise DataError where the store is of other data, or its files are not of the index's
        size (`check_store` takes their checksums, once a job)."""
        self._pixels_path = folder / PIXELS
        index = index_of(folder)
        self._pictures: NDArray[np.int64] = np.load(folder / PICTURES, allow_pickle=False)
        self._map()
        if self._pixels.numel() != index.size_bytes or len(self._pictures) != index.pictures:
            raise DataError(f"{folder} is not as its index says; delete it and run again")
        rows: NDArray[np.int32] = np.load(folder / f"{split}.npy", allow_pickle=False)
        self._of_row = rows[:, 0].tolist()
        tokens = torch.from_numpy(rows[:, 1:].astype(np.int64))
        self.tokens = tokens[:, : tokens.shape[1] // 2], tokens[:, tokens.shape[1] // 2 :]
        """Token numbers and attention mask, each (rows, max_tokens) int64."""
        self._spans = self._pictures.tolist()

    def read(self, row: int, side_px: int, draw: Draw) -> torch.Tensor:
        """A row's crop: uint8 (1 or 3, side_px, side_px); without a random one, a view of the
        file's pages."""
        offset, channels, height, width, full_height, full_width = self._spans[self._of_row[row]]
        end = offset + channels * height * width
        picture = self._pixels[offset:end].view(channels, height, width)
        box = draw.box(full_height, full_width)
        if box is None:
            if min(height, width) > side_px:
                picture = resize_to(picture, resized_size(full_height, full_width, side_px))
            return crop_centre(picture, side_px)
        part = box.scaled((full_height, full_width), (height, width))
        return resize_to(cut(picture, *part), [side_px, side_px])

    def _map(self) -> None:
        # Copy-on-write, since torch warns of what must not be written; nobody writes.
        mapped = np.load(self._pixels_path, mmap_mode="c", allow_pickle=False)
        self._pixels = torch.from_numpy(mapped)

    def __getstate__(self) -> dict[str, Any]:
        """For workers that are not forked: they map the file themselves."""
        return {name: value for name, value in self.__dict__.items() if name != "_pixels"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._map()


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
