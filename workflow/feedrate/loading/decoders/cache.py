"""Pictures decoded once, read from a store (`data/manifest.py` describes its files)."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from feedrate.data.manifest import PICTURES, PIXELS, DataError, read_store
from feedrate.loading.decoders import Source
from feedrate.loading.stages import span

LEVEL = "cache"
LACKS = ("open", "decode")


def read(source: Source, row: int) -> torch.Tensor:
    """A row's crop: uint8 (1 or 3, side, side), a view of the store's pages."""
    if source.store is None:
        raise DataError("loader.decode: cache: this dataset was opened without its store")
    with span("read"):  # the pages of a picture come while it is cut
        return source.store.read(row)


class Store:
    """One split of a store, memory-mapped: workers and ranks share the pages."""

    def __init__(self, folder: Path, split: str) -> None:
        """Raise DataError for other data or sizes. `check_store` compares checksums, once a job."""
        self._pixels_path = folder / PIXELS
        index = read_store(folder)
        self._pictures: NDArray[np.int64] = np.load(folder / PICTURES, allow_pickle=False)
        if self._pixels.numel() != index.size_bytes or len(self._pictures) != index.pictures:
            raise DataError(f"{folder} does not match its index; delete it and run again")
        rows: NDArray[np.int32] = np.load(folder / f"{split}.npy", allow_pickle=False)
        self._of_row = rows[:, 0].tolist()
        tokens = torch.from_numpy(rows[:, 1:].astype(np.int64))
        self.tokens = tokens[:, : tokens.shape[1] // 2], tokens[:, tokens.shape[1] // 2 :]
        """Token numbers and attention mask, each (rows, max_tokens) int64."""
        self._spans = self._pictures.tolist()
        self._side_px = index.image_px
        starts, channels = self._pictures[rows[:, 0]].T[:, :, None]
        self._planes = starts // self._side_px**2 + np.arange(3) * (channels == 3)

    def gather(self, rows: list[int], batch: torch.Tensor) -> None:
        """Copy the crops of these rows to `batch`, uint8 (rows, 3, side_px, side_px)."""
        planes = self._planes[rows].ravel()
        stored = self._pixels.view(-1, batch[0, 0].numel()).numpy()
        # numpy copies long rows faster than torch.index_select; "clip" has it copy them once.
        np.take(stored, planes, 0, batch.numpy().reshape(len(planes), -1), "clip")

    def read(self, row: int) -> torch.Tensor:
        """A row's crop."""
        offset, channels = self._spans[self._of_row[row]]
        end = offset + channels * self._side_px**2
        return self._pixels[offset:end].view(channels, self._side_px, self._side_px)

    @cached_property
    def _pixels(self) -> torch.Tensor:
        # Nothing is written, but torch warns about read-only arrays, so the mode is copy-on-write.
        return torch.from_numpy(np.load(self._pixels_path, mmap_mode="c", allow_pickle=False))

    def __getstate__(self) -> dict[str, Any]:
        """The state without the mapped file: workers that are not forked map it themselves."""
        return {name: value for name, value in self.__dict__.items() if name != "_pixels"}
