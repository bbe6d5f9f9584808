"""LitData of Lightning: samples in chunks that worker processes read one after the other,
https://github.com/Lightning-AI/litData.

Chunks are shuffled, and samples within a chunk, so its order is its own.
"""

import io
import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import litdata
import torch
from PIL import Image

from feedrate.loading.dataset import PairDataset
from feedrate.loading.stages import span
from feedrate_loaders.libraries._feed import Decode, Made, Work, by_pillow, decoded, stacked, stored

PACKAGES = ("litdata",)
INSTALL = "pip install --no-deps -r extras/loaders/requirements/litdata.lock"
FORMS = {"same": ("host",), "best": ("host",)}
OWN_ORDER = True
CHUNKS = 32
"""Chunks of a split: several for each worker."""


class Samples(litdata.StreamingDataset):
    """The samples of a folder of chunks of JPEG files."""

    def __init__(self, folder: Path, seed: int, decode: Decode) -> None:
        super().__init__(str(folder), shuffle=True, seed=seed)
        self._decode = decode

    def __getitem__(self, index: Any) -> tuple[int, torch.Tensor]:
        with span("read"):
            row, data = super().__getitem__(index)
        return row, self._decode(row, data)


def same(work: Work) -> Iterator[Made]:
    """Our decoder."""
    return _batches(work, partial(decoded, work.dataset))


def best(work: Work) -> Iterator[Made]:
    """Pillow decodes and resizes, as in the library's read-me: its own decoder of JPEG needs
    torchvision, which is not installed."""
    opened = partial(by_pillow, lambda data: Image.open(io.BytesIO(data)).convert("RGB"))
    return _batches(work, partial(opened, work.dataset.image_px))


def _batches(work: Work, decode: Decode) -> Iterator[Made]:
    folder = stored(work.dataset, "litdata", partial(_write, work.dataset))
    loader = litdata.StreamingDataLoader(
        Samples(folder, work.seed, decode),
        batch_size=work.batch_size,
        persistent_workers=work.workers > 0,
        collate_fn=stacked,
        **work.workers_of_torch,
    )
    epochs = itertools.repeat(loader) if work.length is None else [loader]
    return itertools.chain.from_iterable(epochs)


def _write(dataset: PairDataset, folder: Path) -> None:
    def sample(row: int) -> tuple[int, bytes]:
        return row, dataset.paths[row].read_bytes()

    rows = list(range(len(dataset)))
    options = {"num_workers": 1, "start_method": "fork", "verbose": False}
    litdata.optimize(sample, rows, str(folder), chunk_size=-(-len(rows) // CHUNKS), **options)
