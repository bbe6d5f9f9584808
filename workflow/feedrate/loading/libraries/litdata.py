"""LitData of Lightning: samples in chunks that worker processes read one after the other,
https://github.com/Lightning-AI/litData.

Chunks are shuffled, and samples within a chunk, so its order is its own.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import litdata
import torch

from feedrate.loading.dataset import PairDataset
from feedrate.loading.libraries._feed import Made, Work, decoded, own_format, rebatched, stacked
from feedrate.loading.stages import span

PACKAGES = ("litdata",)
FORMS = ("same",)
OWN_ORDER = ("same",)
DECODES = ("host",)
CHUNKS = 32
"""Chunks of a split: several for each worker."""


class Samples(litdata.StreamingDataset):
    """The samples of a folder of chunks, decoded by our decoder."""

    def __init__(self, pairs: PairDataset, folder: Path, seed: int) -> None:
        super().__init__(str(folder), shuffle=True, seed=seed)
        self._pairs = pairs

    def __getitem__(self, index: Any) -> tuple[int, torch.Tensor]:
        """A row and its pixels."""
        with span("read"):
            row, data = super().__getitem__(index)
        return row, decoded(self._pairs, row, data)


def same(work: Work) -> Iterator[Made]:
    """Chunks of JPEG files."""
    folder = own_format(work.dataset, "litdata", partial(_write, work.dataset))
    return rebatched(_epochs(work, folder), work.batch_size)


def _epochs(work: Work, folder: Path) -> Iterator[Made]:
    loader = litdata.StreamingDataLoader(
        Samples(work.dataset, folder, work.seed),
        batch_size=work.batch_size,
        persistent_workers=work.workers > 0,
        collate_fn=stacked,
        **work.workers_of_torch,
    )
    yield from loader
    while work.length is None:
        yield from loader


def _write(dataset: PairDataset, folder: Path) -> None:
    litdata.optimize(
        fn=partial(_sample, dataset.paths),
        inputs=list(range(len(dataset))),
        output_dir=str(folder),
        chunk_size=-(-len(dataset) // CHUNKS),
        num_workers=1,
        start_method="fork",
        verbose=False,
    )


def _sample(paths: list[Path], row: int) -> tuple[int, bytes]:
    return row, paths[row].read_bytes()
