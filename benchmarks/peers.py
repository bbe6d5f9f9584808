"""The loader beside other libraries: decoding to equal pixels, the cache, memory, first batch.

`python -m benchmarks.peers PREPARED WORK ROUNDS [FOLDER]` prints one JSON object a line. Only
libraries that are installed take part. WORK is for small copies; FOLDER holds JPEG files.
"""

import gc
import importlib.util
import io
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import simplejpeg
import torch
from PIL import Image

from benchmarks.drain import BATCH, PX, Order, open_level, show
from feedrate.config.settings import LoaderSettings
from feedrate.devices.kinds.cpu import DeviceAdapter
from feedrate.loading.dataset import PairDataset
from feedrate.loading.decoders.host import read_pixels
from feedrate.loading.path import open_path
from feedrate.loading.pixels import crop_centre, resize_to, resized_size

SMALL_PX, FILES, BATCHES, DRAINED = 200, 24, 150, 12
THREADS = 2
FIRST = 30
"""Batches of the cache before the clock starts; each page of a slot costs a fault at first."""
Read = Callable[[Path], torch.Tensor]


def usual(path: Path) -> torch.Tensor:
    """simplejpeg and torch's resize of bytes: what a user of a loader library would write."""
    data = path.read_bytes()
    colours = simplejpeg.decode_jpeg_header(data)[2]
    decoded = simplejpeg.decode_jpeg(data, "GRAY" if colours == "Gray" else "RGB")
    levels = torch.from_numpy(decoded).permute(2, 0, 1)
    return crop_centre(resize_to(levels, resized_size(*levels.shape[1:], PX)), PX)


def pillow(path: Path) -> torch.Tensor:
    """Pillow alone, in bytes."""
    with Image.open(path) as opened:
        image = opened if opened.mode == "L" else opened.convert("RGB")
        height, width = resized_size(image.height, image.width, PX)
        small = np.array(image.resize((width, height), Image.Resampling.BICUBIC))
    return crop_centre(torch.from_numpy(np.atleast_3d(small)).permute(2, 0, 1), PX)


def decoded_only(path: Path) -> torch.Tensor:
    """Only libjpeg-turbo, without a resize: no reader of whole files is faster."""
    data = path.read_bytes()
    grey = simplejpeg.decode_jpeg_header(data)[2] == "Gray"
    return torch.from_numpy(simplejpeg.decode_jpeg(data, "GRAY" if grey else "RGB"))


READERS: dict[str, Read] = {
    "feedrate": lambda path: read_pixels(path, PX, scaled=False),
    "simplejpeg and torch": usual,
    "Pillow": pillow,
    "decoding alone": decoded_only,
}


def spdl(dataset: PairDataset, order: Order) -> Iterator[Any]:
    """spdl-core: threads decode single pictures, and batches are collated."""
    from spdl.pipeline import PipelineBuilder

    def one(row: int) -> torch.Tensor:
        return usual(dataset.paths[row]).expand(3, -1, -1)

    rows = [row for batch in order for row in batch]
    built = PipelineBuilder().add_source(rows).pipe(one, concurrency=THREADS, output_order="input")
    pipeline = built.aggregate(BATCH).pipe(torch.stack).add_sink(THREADS).build(num_threads=THREADS)
    with pipeline.auto_stop():
        yield from pipeline


def torchdata(dataset: PairDataset, order: Order) -> Iterator[Any]:
    """torchdata.nodes: threads make whole batches."""
    from torchdata.nodes import IterableWrapper, Loader, ParallelMapper

    def batch(rows: list[int]) -> torch.Tensor:
        return torch.stack([usual(dataset.paths[row]).expand(3, -1, -1) for row in rows])

    node = ParallelMapper(IterableWrapper(order), batch, num_workers=THREADS, method="thread")
    yield from Loader(node)


def ours(start_method: str, dataset: PairDataset, order: Order) -> Iterator[Any]:
    """feedrate with two workers: processes or threads."""
    settings = LoaderSettings(decode="host", workers=THREADS, start_method=start_method)  # type: ignore[arg-type]
    yield from open_path(DeviceAdapter(0, 1), settings).batches(dataset, order)


def loaders() -> dict[str, Callable[[PairDataset, Order], Iterator[Any]]]:
    """The loaders that can run here."""
    peers = {"spdl": spdl, "torchdata": torchdata}
    installed = {name: peers[name] for name in peers if importlib.util.find_spec(name)}
    return {"fork": partial(ours, "fork"), "thread": partial(ours, "thread")} | installed


def groups(
    dataset: PairDataset, folder: Path, own: Path | None
) -> Iterator[tuple[str, list[Path]]]:
    """Files by origin, size and colour; small ones are made from the large ones."""
    origins = {"generated": sorted(set(dataset.paths))}
    if own:
        origins["folder"] = sorted(own.glob("**/*.jp*g"))
    for origin, paths in origins.items():
        for grey in (False, True):
            alike = [p for p in paths if (Image.open(p).mode == "L") is grey][:FILES]
            if not alike:
                continue
            kind = f"{origin}, {'grey' if grey else 'colour'}"
            yield f"{kind}, large", alike
            small = []
            for path in alike:
                small.append(folder / f"{kind} {path.name}")
                with Image.open(path) as image:
                    image.thumbnail((SMALL_PX, SMALL_PX))
                    data = io.BytesIO()
                    image.save(data, "JPEG", quality=90)
                small[-1].write_bytes(data.getvalue())
            yield f"{kind}, small", small


def decode(name: str, paths: list[Path]) -> None:
    """Milliseconds of CPU time per picture of each reader, one after the other, and their pixels'
    mean absolute difference to ours."""
    spent: dict[str, float] = {}
    for reader, read in random.sample(list(READERS.items()), len(READERS)):
        read(paths[0])
        start_s = time.process_time()
        for path in paths:
            read(path)
        spent[reader] = (time.process_time() - start_s) / len(paths) * 1e3
    wanted = read_pixels(paths[0], PX, scaled=False).float()
    off = {
        r: float((READERS[r](paths[0]).float() - wanted).abs().mean()) for r in list(READERS)[:3]
    }
    show("decode", group=name, ms=spent, off=off)


def gather(dataset: PairDataset, seed: int) -> None:
    """The cache's samples per second, and those of one index_select into a kept buffer."""
    source = torch.randint(0, 255, (len(dataset), 3 * PX * PX), dtype=torch.uint8)
    kept = torch.zeros((BATCH, source.shape[1]), dtype=torch.uint8)
    order = Order(len(dataset), BATCHES, seed)
    longer = Order(len(dataset), FIRST + BATCHES, seed)
    for workers in (0, 1, 2):
        chosen = [torch.tensor(rows) for rows in order]
        start_s = time.perf_counter()
        for rows in chosen:
            torch.index_select(source, 0, rows, out=kept)
        limit = BATCH * BATCHES / (time.perf_counter() - start_s)
        settings = LoaderSettings(decode="cache", workers=workers)
        batches = open_path(DeviceAdapter(0, 1), settings).batches(dataset, longer)
        for _ in range(FIRST):
            next(batches)
        start_s, drained = time.perf_counter(), 0
        while (batch := next(batches, None)) is not None:
            drained += len(batch["input_ids"])
            del batch  # before the next one is made: the limit has one buffer too
        rate = drained / (time.perf_counter() - start_s)
        show("gather", workers=workers, rows=BATCH, share=rate / limit, per_s=rate, limit=limit)


def transport(name: str, prepared: Path) -> None:
    """First batch, samples per second and memory of the process tree of one loader."""
    dataset = open_level(prepared, {"decode": "host"})
    gc.collect()
    start_s = time.perf_counter()
    batches = loaders()[name](dataset, Order(len(dataset), DRAINED, 0))
    next(batches)
    first_s = time.perf_counter() - start_s
    start_s, here, used = time.perf_counter(), psutil.Process(), 0.0
    for count, _ in enumerate(batches, 1):
        if count == DRAINED // 2:
            tree = [here, *here.children(recursive=True)]
            used = sum(process.memory_full_info().pss for process in tree) / 2**20
    rate = (DRAINED - 1) * BATCH / (time.perf_counter() - start_s)
    show("transport", loader=name, first_s=first_s, tree_mib=used, per_s=rate)


def main(prepared: Path, work: Path, rounds: int, own: Path | None) -> None:
    """All measurements, in rounds."""
    torch.set_num_threads(1)
    dataset = open_level(prepared, {"decode": "cache"})
    found = list(groups(dataset, work, own))
    for round_ in range(rounds):
        for name, paths in found:
            decode(name, paths)
        gather(dataset, round_)
        for name in loaders():
            command = [sys.executable, "-m", "benchmarks.peers", str(prepared), name]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        torch.set_num_threads(1)
        transport(sys.argv[2], Path(sys.argv[1]))
    else:
        folder = Path(sys.argv[4]) if len(sys.argv) > 4 else None
        main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), folder)
