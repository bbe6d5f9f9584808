"""WebDataset: samples in tar files that torch's worker processes read from end to end,
https://github.com/webdataset/webdataset.

Shards are shuffled, and samples within a buffer, so its order is its own.
"""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import webdataset

from feedrate.loading.dataset import PairDataset
from feedrate.loading.stages import span
from feedrate_loaders.libraries._feed import Decode, Made, Work, by_pillow, decoded, stacked, stored

PACKAGES = ("webdataset",)
INSTALL = "pip install --no-deps -r extras/loaders/requirements/webdataset.lock"
FORMS = {"same": ("host",), "best": ("host",)}
OWN_ORDER = True
SHARDS = 32
"""Tar files of a split: several for each worker."""
BUFFER = 1000
"""Samples that are shuffled at a time, as in the library's examples."""


def same(work: Work) -> Iterator[Made]:
    """Our decoder in place of the library's."""
    return _stream(work, partial(decoded, work.dataset))


def best(work: Work) -> Iterator[Made]:
    """Its decoder "pil"; Pillow resizes."""
    decode = partial(webdataset.imagehandler("pil"), ".jpg")
    return _stream(work, partial(by_pillow, decode, work.dataset.image_px))


def _stream(work: Work, decode: Decode) -> Iterator[Made]:
    def of_row(one: dict[str, Any]) -> tuple[int, torch.Tensor]:
        row = int(one["__key__"])
        return row, decode(row, one["jpg"])

    folder = stored(work.dataset, "webdataset", partial(_write, work.dataset))
    shards = [str(file) for file in sorted(folder.glob("*.tar"))]
    samples = webdataset.WebDataset(shards, shardshuffle=SHARDS, seed=work.seed, empty_check=False)
    samples = samples.compose(_read).shuffle(BUFFER, seed=work.seed).map(of_row)
    samples = samples.batched(work.batch_size, collation_fn=stacked)
    samples = samples if work.length else samples.repeat()
    yield from webdataset.WebLoader(samples, batch_size=None, **work.workers_of_torch)


def _read(samples: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The samples of the tar files, which are opened and read one after the other."""
    while True:
        with span("read"):
            sample = next(samples, None)
        if sample is None:
            return
        yield sample


def _write(dataset: PairDataset, folder: Path) -> None:
    """Tar files of the pictures in random order, as the library advises."""
    rows = list(range(len(dataset)))
    random.Random(0).shuffle(rows)
    most = -(-len(rows) // SHARDS)
    with webdataset.ShardWriter(str(folder / "%04d.tar"), maxcount=most, verbose=0) as shards:
        for row in rows:
            shards.write({"__key__": f"{row:08}", "jpg": dataset.paths[row].read_bytes()})
