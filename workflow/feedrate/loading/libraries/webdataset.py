"""WebDataset: samples in tar files that worker processes read from end to end,
https://github.com/webdataset/webdataset.

Shards are shuffled, and samples within a buffer, so its order is its own. Its worker processes are
those of torch's DataLoader.
"""

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import webdataset
from PIL import Image

from feedrate.loading.dataset import PairDataset
from feedrate.loading.libraries._feed import Made, Work, decoded, own_format, rebatched, stacked
from feedrate.loading.pixels import crop_centre, resized_size
from feedrate.loading.stages import span

PACKAGES = ("webdataset",)
FORMS = ("same", "best")
OWN_ORDER = ("same", "best")
DECODES = ("host",)
SHARDS = 32
"""Tar files of a split: several for each worker."""
BUFFER = 1000
"""Samples that are shuffled at a time, as in the library's examples."""

Sample = dict[str, Any]


def same(work: Work) -> Iterator[Made]:
    """Our decoder in place of the library's."""

    def decode(sample: Sample) -> tuple[int, torch.Tensor]:
        row = int(sample["__key__"])
        return row, decoded(work.dataset, row, sample["jpg"])

    return _stream(work, lambda samples: samples.map(decode))


def best(work: Work) -> Iterator[Made]:
    """Its decoder "pil"; Pillow resizes the shorter side (antialiased bicubic); centre crop."""
    pillow, side = webdataset.imagehandler("pil"), work.dataset.image_px

    def decode(key: str, data: bytes) -> Image.Image | None:
        with span("decode"):
            return pillow(key, data)

    def resize(sample: Sample) -> tuple[int, torch.Tensor]:
        image: Image.Image = sample["jpg"]
        height, width = resized_size(image.height, image.width, side)
        with span("resize"):
            resized = image.convert("RGB").resize((width, height), Image.Resampling.BICUBIC)
            pixels = torch.from_numpy(np.array(resized)).permute(2, 0, 1)
            return int(sample["__key__"]), crop_centre(pixels, side)

    return _stream(work, lambda samples: samples.decode(decode).map(resize))


def _stream(work: Work, decode: Callable[[Any], Any]) -> Iterator[Made]:
    folder = own_format(work.dataset, "webdataset", partial(_write, work.dataset))
    shards = [str(file) for file in sorted(folder.glob("*.tar"))]
    samples = webdataset.WebDataset(shards, shardshuffle=SHARDS, seed=work.seed, empty_check=False)
    samples = decode(samples.compose(_read).shuffle(BUFFER, seed=work.seed))
    samples = samples.batched(work.batch_size, collation_fn=stacked)
    loader = webdataset.WebLoader(
        samples if work.length else samples.repeat(),
        batch_size=None,
        **work.workers_of_torch,
    )
    return rebatched(loader, work.batch_size)


def _read(samples: Iterator[Sample]) -> Iterator[Sample]:
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
