"""The store of the level `cache`: pictures decoded and resized once, captions tokenised once.

A folder with `pixels.npy` (uint8, one picture after the other, one channel where it is grey), for
each split `<split>.npy` (int32: picture, token numbers, attention mask of each row), and
`index.json`, which says what all this was made from and how it is checked.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray

from feedrate.config.base import Strict
from feedrate.config.settings import Settings
from feedrate.config.store import StoreSpec, store_spec
from feedrate.data.loading.augment import Draw
from feedrate.data.loading.pixels import crop_centre, cut, resize_to, resized_size
from feedrate.data.manifest import MANIFEST, DataError
from feedrate.files import digest_file

INDEX, PIXELS, PICTURES = "index.json", "pixels.npy", "pictures.npy"
"""What lies in a store. pictures.npy (int64) has a row for each picture: where it starts in
pixels.npy, its channels, height and width there, and height and width in its file."""


def store_folder(settings: Settings, prepared: Path) -> Path | None:
    """Where the store of these settings lies, for a prepared dataset; None: they need none."""
    spec = store_spec(settings)
    return prepared.parent / "store" / spec.key if spec else None


class StoreIndex(Strict, kw_only=True):
    """index.json."""

    spec: StoreSpec
    manifest: Annotated[str, Meta(description="SHA-256 of the prepared data's manifest.")]
    image_px: int
    pictures: int
    size_bytes: Annotated[int, Meta(description="Of pixels.npy.")]
    files: Annotated[dict[str, str], Meta(description="SHA-256 of each file.")]


def read_index(folder: Path) -> StoreIndex:
    """Read a store's index. Raises DataError where it is missing or of another version."""
    try:
        value = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        return msgspec.convert(value, StoreIndex)
    except FileNotFoundError:
        raise DataError(
            f"{folder / INDEX}: no such file; decode: cache needs the store that the rule "
            "store_dataset makes"
        ) from None
    except (ValueError, msgspec.ValidationError) as error:
        raise DataError(f"{folder / INDEX}: not a store of this version ({error})") from None


class Store:
    """One split of a store, memory-mapped: workers and ranks share the pages."""

    def __init__(self, folder: Path, split: str) -> None:
        """Raise DataError where the store is of other data, or its files are not of the index's
        size (their checksums are taken where the store is made)."""
        self._pixels_path = folder / PIXELS
        index = read_index(folder)
        if digest_file(folder.parent.parent / "prepared" / MANIFEST) != index.manifest:
            raise DataError(f"{folder} was made from other data; delete it and run again")
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
