"""The loader beside other libraries: decoding to equal pixels, the cache, memory, first batch.

`python -m benchmarks.peers PREPARED WORK ROUNDS [FOLDER]` prints one JSON object a line. Only
libraries that are installed take part; those that are missing are named. WORK is for small copies;
FOLDER holds JPEG files.
"""

import gc
import io
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import simplejpeg
import torch
from PIL import Image

from benchmarks.drain import BATCH, PX, Order, open_level, show
from feedrate.config.settings import LoaderSettings
from feedrate.config.spec import LIBRARIES
from feedrate.core import plugins
from feedrate.devices.base import UnsupportedError
from feedrate.devices.kinds.cpu import DeviceAdapter
from feedrate.loading.dataset import PairDataset
from feedrate.loading.decoders.host import crop_of
from feedrate.loading.path import open_path
from feedrate.loading.pixels import crop_centre, resize_to, resized_size

SMALL_PX, FILES, BATCHES, DRAINED = 200, 24, 60, 12
PAIRS = 3
"""Pairs of the cache and its limit in a round, for each number of workers."""
THREADS = 2
FIRST = 30
"""Batches of the cache before the clock starts; each page of a slot costs a fault at first."""
READY = 16
"""Batches that may be ready before the clock starts, at most."""
SETTLE_S = 0.05
"""Workers have filled what they may prefetch."""
Read = Callable[[list[Path]], list[torch.Tensor]]
"""A reader of pictures: uint8 (1 or 3, PX, PX) each."""


def resized(levels: torch.Tensor) -> torch.Tensor:
    """The centre crop of (c, h, w), by torch's resize of bytes."""
    return crop_centre(resize_to(levels, resized_size(*levels.shape[1:], PX)), PX)


def usual(path: Path) -> torch.Tensor:
    """simplejpeg and torch's resize of bytes: what a user of a loader library would write."""
    return resized(decoded_only(path).permute(2, 0, 1))


def decoded_only(path: Path) -> torch.Tensor:
    """Only libjpeg-turbo, without a resize: no reader of whole files is faster."""
    data = path.read_bytes()
    grey = simplejpeg.decode_jpeg_header(data)[2] == "Gray"
    return torch.from_numpy(simplejpeg.decode_jpeg(data, "GRAY" if grey else "RGB"))


def pillow(path: Path) -> torch.Tensor:
    """Pillow alone, in bytes: the decoder of WebDataset and LitData."""
    with Image.open(path) as opened:
        image = opened if opened.mode == "L" else opened.convert("RGB")
        height, width = resized_size(image.height, image.width, PX)
        small = np.array(image.resize((width, height), Image.Resampling.BICUBIC))
    return crop_centre(torch.from_numpy(np.atleast_3d(small)).permute(2, 0, 1), PX)


def torchvision(path: Path) -> torch.Tensor:
    """torchvision's own decoder, and its resize, which is torch's."""
    from torchvision.io import decode_image, read_file

    return resized(decode_image(read_file(str(path))))


def of_library(name: str, paths: list[Path]) -> list[torch.Tensor]:
    """The decoder that a library's documentation advises, with one thread; colours are RGB."""
    from feedrate.loading.libraries._feed import Work

    order = [list(range(len(paths)))]
    dataset: Any = SimpleNamespace(paths=paths, image_px=PX)
    work = Work(dataset, order, len(paths), workers=1, ahead=1, seed=0, length=1)
    (made,) = plugins.load(LIBRARIES, name).best(work)
    return list(made.pixels)


def one_by_one(read: Callable[[Path], torch.Tensor]) -> Read:
    """A reader of several pictures from one of a single picture."""
    return lambda paths: [read(path) for path in paths]


READERS: dict[str, Read] = {
    "feedrate": one_by_one(lambda path: crop_of(path, path.read_bytes(), PX)),
    "decoding alone": one_by_one(decoded_only),
    "simplejpeg and torch": one_by_one(usual),
    "Pillow": one_by_one(pillow),
    "torchvision": one_by_one(torchvision),
    "SPDL's FFmpeg": partial(of_library, "spdl"),
    "DALI": partial(of_library, "dali"),
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


def opened(dataset: PairDataset, order: Order, **settings: Any) -> Iterator[Any]:
    """A loader of feedrate with two workers: its own, or a library with its documented decoder."""
    loader = LoaderSettings(decode="host", workers=THREADS, **settings)
    yield from open_path(DeviceAdapter(0, 1), loader).batches(dataset, order)


LOADERS: dict[str, Callable[[PairDataset, Order], Iterator[Any]]] = {
    "fork": partial(opened, start_method="fork"),
    "thread": partial(opened, start_method="thread"),
    "spdl": spdl,
    "torchdata": torchdata,
    "grain": partial(opened, library="grain"),
    "SPDL's FFmpeg": partial(opened, library="spdl", form="best"),
    "DALI": partial(opened, library="dali", form="best"),
}
"""feedrate's processes and threads, and the others."""


def working(name: str, work: Callable[[], object]) -> bool:
    """Whether a library works here; if not, says why."""
    try:
        work()
    except (ImportError, OSError, UnsupportedError) as error:
        show("missing", library=name, why=str(error).splitlines()[0])
        return False
    return True


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


def decode(name: str, paths: list[Path], readers: dict[str, Read]) -> None:
    """Milliseconds of CPU time per picture of each reader, one after the other, and their pixels'
    mean absolute difference to ours."""
    spent, pixels = {}, {}
    for reader, read in random.sample(list(readers.items()), len(readers)):
        pixels[reader] = read(paths[:1])[0].float()
        start_s = time.process_time()
        read(paths)
        spent[reader] = (time.process_time() - start_s) / len(paths) * 1e3
    del pixels["decoding alone"]
    off = {reader: float((one - pixels["feedrate"]).abs().mean()) for reader, one in pixels.items()}
    show("decode", group=name, ms=spent, off=off)


def gather(dataset: PairDataset, seed: int) -> None:
    """Batches of the cache, and as many index_selects into a kept buffer: wall time and CPU time of
    this process and its workers, s per batch. Both take turns in one process."""
    source = torch.randint(0, 255, (len(dataset), 3 * PX * PX), dtype=torch.uint8)
    kept = torch.zeros((BATCH, source.shape[1]), dtype=torch.uint8)
    chosen = [torch.tensor(rows) for rows in Order(len(dataset), BATCHES, seed)]

    def limit() -> None:
        for rows in chosen:
            torch.index_select(source, 0, rows, out=kept)

    for workers in (0, 1, 2):
        order = Order(len(dataset), FIRST + PAIRS * (READY + BATCHES), seed)
        settings = LoaderSettings(decode="cache", workers=workers)
        batches = open_path(DeviceAdapter(0, 1), settings).batches(dataset, order)
        drain(batches, FIRST)
        for _ in range(PAIRS):
            time.sleep(SETTLE_S)
            limit_s, _ = timed(limit)
            drain(batches, READY)
            wall_s, cpu_s = timed(partial(drain, batches, BATCHES))
            found = {"limit_s": limit_s, "wall_s": wall_s, "cpu_s": cpu_s}
            show("gather", workers=workers, **{n: s / BATCHES for n, s in found.items()})
        batches.close()


def drain(batches: Iterator[Any], count: int) -> None:
    """Take batches; each is freed before the next one, as the limit has one buffer too."""
    for _ in range(count):
        next(batches)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall time, and CPU time of this process and its workers, s."""
    tree = [psutil.Process(), *psutil.Process().children()]
    start_s, cpu_s = time.perf_counter(), sum(sum(one.cpu_times()[:2]) for one in tree)
    work()
    wall_s = time.perf_counter() - start_s
    return wall_s, sum(sum(one.cpu_times()[:2]) for one in tree) - cpu_s


def transport(name: str, prepared: Path) -> None:
    """First batch, samples per second and memory of the process tree of one loader."""
    dataset = open_level(prepared, {"decode": "host"})
    gc.collect()
    start_s = time.perf_counter()
    batches = LOADERS[name](dataset, Order(len(dataset), DRAINED, 0))
    next(batches)
    first_s = time.perf_counter() - start_s
    start_s, here, used = time.perf_counter(), psutil.Process(), 0.0
    for count, _ in enumerate(batches, 1):
        if count == DRAINED // 2:
            tree = [here, *here.children(recursive=True)]
            used = sum(process.memory_full_info().pss for process in tree) / 2**20
    rate = (DRAINED - 1) * BATCH / (time.perf_counter() - start_s)
    show("transport", loader=name, first_s=first_s, tree_mib=used, per_s=rate)


def alone(prepared: Path, what: str, seed: int) -> str:
    """The lines of a measurement in a process of its own, which are printed too."""
    command = [sys.executable, "-m", "benchmarks.peers", str(prepared), what, str(seed)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    print(said, end="", flush=True)
    return said


def main(prepared: Path, work: Path, rounds: int, own: Path | None) -> None:
    """All measurements, in rounds."""
    found = list(groups(open_level(prepared, {"decode": "cache"}), work, own))
    one, loaders = found[0][1][:1], list(LOADERS)
    readers = {name: read for name, read in READERS.items() if working(name, partial(read, one))}
    for round_ in range(rounds):
        for name, paths in found:
            decode(name, paths, readers)
        alone(prepared, "cache", round_)
        for name in random.sample(loaders, len(loaders)):
            if '"missing"' in alone(prepared, name, round_):
                loaders.remove(name)


if __name__ == "__main__":
    torch.set_num_threads(1)
    match [Path(sys.argv[1]), *sys.argv[2:]]:
        case [prepared, "cache", seed]:
            gather(open_level(prepared, {"decode": "cache"}), int(seed))
        case [prepared, name, seed] if name in LOADERS:
            working(name, partial(transport, name, prepared))
        case [prepared, work, rounds, *folder]:
            main(prepared, Path(work), int(rounds), Path(*folder) if folder else None)
