"""The loader beside other libraries: decoding to equal pixels, the cache, memory, first batch.

`python -m benchmarks.peers PREPARED WORK ROUNDS [FOLDER]` prints one JSON object a line. Only
libraries that are installed take part; those that are missing are named. WORK is for small copies;
FOLDER holds JPEG files.
"""

import gc
import importlib
import io
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from benchmarks.drain import BATCH, PX, Order, open_level, show
from benchmarks.readers import (
    DECODERS,
    PARTS,
    READERS,
    Read,
    stored,
    torchvision,
    usual,
)
from feedrate.config.settings import LoaderSettings
from feedrate.config.spec import missing_packages
from feedrate.devices.base import UnsupportedError
from feedrate.devices.kinds.cpu import DeviceAdapter
from feedrate.loading.dataset import PairDataset
from feedrate.loading.path import open_path

SMALL_PX, FILES, BATCHES, DRAINED = 200, 24, 60, 12
AHEAD = 4
"""Batches before the clock of a rate starts: some loaders have made several with their first."""
PAIRS = 3
"""Pairs of the cache and its limit in a round, for each number of workers."""
THREADS, PASSES = 2, 3
"""Workers of each loader, and passes of each decoder over the files in a round."""
FIRST = 30
"""Batches of the cache before the clock starts; each page of a slot costs a fault at first."""
READY = 16
"""Batches that may be ready before the clock starts, at most."""
SETTLE_S = 0.05
"""Workers have filled what they may prefetch."""


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


class Pictures(Dataset[torch.Tensor]):
    """A user's dataset with torchvision's decoder and resize."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths

    def __getitem__(self, row: int) -> torch.Tensor:
        """A picture as uint8 (3, PX, PX)."""
        return torchvision(self._paths[row]).expand(3, -1, -1)


def in_torch(dataset: PairDataset, order: Order) -> Iterator[Any]:
    """torchvision in the worker processes of PyTorch's DataLoader, as in its tutorials."""
    importlib.import_module("torchvision")  # fails here and not in a worker
    yield from DataLoader(Pictures(dataset.paths), batch_sampler=order, num_workers=THREADS)


LOADERS: dict[str, Callable[[PairDataset, Order], Iterator[Any]]] = {
    "fork": partial(opened, start_method="fork"),
    "thread": partial(opened, start_method="thread"),
    "spdl": spdl,
    "torchdata": torchdata,
    "SPDL, our decoder": partial(opened, library="spdl"),
    "torchdata, our decoder": partial(opened, library="torchdata"),
    "grain": partial(opened, library="grain"),
    "SPDL's FFmpeg": partial(opened, library="spdl", form="best"),
    "DALI": partial(opened, library="dali", form="best"),
    "webdataset": partial(opened, library="webdataset"),
    "litdata": partial(opened, library="litdata"),
    "FFCV": partial(opened, library="ffcv"),
    "FFCV's JPEG": partial(opened, library="ffcv", form="best"),
    "torchvision": in_torch,
}
"""feedrate's processes and threads, and the others."""
NAMES = {
    "SPDL's FFmpeg": "spdl",
    "SPDL, our decoder": "spdl",
    "torchdata, our decoder": "torchdata",
    "DALI": "dali",
    "FFCV": "ffcv",
    "FFCV's JPEG": "ffcv",
}
"""The loader library of a reader or a loader that has another name."""
TORCHVISION = (
    "torchvision is not installed here; install the one that belongs to this torch, from the same "
    "index: pip install --no-deps $(grep ^torchvision requirements/cuda.lock)"
)


def working(name: str, work: Callable[[], object], *goals: str) -> bool:
    """Whether a library works here; if not, says why, and which goals lack it."""
    try:
        work()
    except (ImportError, OSError, UnsupportedError) as error:
        absent = missing_packages(NAMES.get(name, name))
        if name == "torchvision" and isinstance(error, ModuleNotFoundError):
            absent = TORCHVISION
        why = absent or str(error).splitlines()[0]
        show("missing", library=name, why=why, goals=goals)
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
    """Milliseconds of CPU time per picture of each reader, one after the other, and the readers'
    mean absolute difference to our pixels."""
    spent, pixels = {}, {}
    for reader, read in random.sample(list(readers.items()), len(readers)):
        read(paths[:1])
        spent[reader], made = spent_ms(read, paths)
        if reader in NAMES:  # without the time in which it builds its pipeline
            twice_ms, made = spent_ms(read, paths * 2)
            spent[reader] = 2 * twice_ms - spent[reader]
        pixels[reader] = torch.stack(made[: len(paths)]).float()
    whole = pixels.keys() - set(PARTS)
    off = {one: float((pixels[one] - pixels["feedrate"]).abs().mean()) for one in whole}
    show("decode", group=name, ms=spent, off=off)


def spent_ms(read: Callable[[list[Path]], Any], paths: list[Path]) -> tuple[float, Any]:
    """CPU time per picture, ms, and what was read."""
    start_s = time.process_time()
    made = read(paths)
    return (time.process_time() - start_s) / len(paths) * 1e3, made


def decoders(name: str, paths: list[Path]) -> None:
    """Milliseconds of CPU time per picture of whole files' decoders that are installed."""
    spent = {}
    for decoder, one in random.sample(list(DECODERS.items()), len(DECODERS)):
        try:
            one(paths[0])
        except (ImportError, RuntimeError):
            continue
        spent[decoder], _ = spent_ms(partial(discarded, one), paths)
    show("decoders", group=name, ms=spent)


def discarded(decoder: Callable[[Path], object], paths: list[Path]) -> None:
    """Each picture is decoded to the memory of the one before, as in a reader."""
    for path in paths:
        decoder(path)


def between(paths: list[Path], small: list[Path]) -> None:
    """CPU time and bytes per picture of crops that are stored as JPEG files, and of `host`."""
    ours = READERS["feedrate"]
    for name, files in {"host": paths, "stored": small}.items():
        ms, _ = spent_ms(ours, files)
        show("between", level=name, ms=ms, bytes=sum(f.stat().st_size for f in files) / len(files))


def gather(dataset: PairDataset, seed: int) -> None:
    """Batches of the cache, and as many index_selects into a kept buffer: wall time and CPU time of
    this process and its workers, s per batch. Both take turns in one process.

    Workers make batches ahead, each in a buffer of its own; `ahead_s` is the time of index_selects
    into so many buffers in turn, which leave the processor's cache. `copy_s` is the time of the
    cache's own copies into one buffer, without tokens, order and hand-over."""
    source = torch.randint(0, 255, (len(dataset), 3 * PX * PX), dtype=torch.uint8)
    chosen = [torch.tensor(rows) for rows in Order(len(dataset), BATCHES, seed)]
    store = dataset._store
    assert store is not None

    def select(buffers: torch.Tensor) -> None:
        for number, rows in enumerate(chosen):
            torch.index_select(source, 0, rows, out=buffers[number % len(buffers)])

    def copy(buffers: torch.Tensor) -> None:
        for rows in chosen:
            store.gather(rows.tolist(), buffers[0].view(BATCH, 3, PX, PX))

    for workers in (0, 1, 2):
        under_way = 1 + workers * LoaderSettings().prefetch_factor
        buffers = torch.zeros((under_way, BATCH, source.shape[1]), dtype=torch.uint8)
        order = Order(len(dataset), FIRST + PAIRS * (READY + BATCHES), seed)
        settings = LoaderSettings(decode="cache", workers=workers)
        batches = open_path(DeviceAdapter(0, 1), settings).batches(dataset, order)
        drain(batches, FIRST)
        for _ in range(PAIRS):
            time.sleep(SETTLE_S)
            limit_s, _ = timed(partial(select, buffers[:1]))
            ahead_s, _ = timed(partial(select, buffers))
            copy_s, _ = timed(partial(copy, buffers))
            drain(batches, READY)
            wall_s, cpu_s = timed(partial(drain, batches, BATCHES))
            found = {"limit_s": limit_s, "ahead_s": ahead_s, "copy_s": copy_s}
            found |= {"wall_s": wall_s, "cpu_s": cpu_s}
            times = {name: seconds / BATCHES for name, seconds in found.items()}
            show("gather", workers=workers, buffers=under_way, **times)
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


def tree_mib(tree: Iterable[psutil.Process]) -> float:
    """Memory of a process tree, MiB. Pages of libraries count in full: the benchmark's own process
    has them too, a user's machine has not, and shares of them would make every ratio larger."""
    used_kib, libraries_kib = 0, [0]
    for process in tree:
        folder = Path(f"/proc/{process.pid}")
        pages = (folder / "smaps_rollup").read_text() + (folder / "status").read_text()
        kib = {name: int(size) for name, size in re.findall(r"^(\w+):\s+(\d+) kB", pages, re.M)}
        used_kib += kib["Pss_Anon"] + kib["Pss_Shmem"]
        libraries_kib.append(kib["RssFile"])
    return (used_kib + max(libraries_kib)) / 1024


def transport(name: str, prepared: Path) -> None:
    """First batch, samples per second and memory of the process tree of one loader, which has made
    a batch before: some write a file of their own first, or compile."""
    dataset = open_level(prepared, {"decode": "host"})
    drain(iter(LOADERS[name](dataset, Order(len(dataset), 1, 1))), 1)
    gc.collect()
    start_s = time.perf_counter()
    batches = LOADERS[name](dataset, Order(len(dataset), DRAINED, 0))
    next(batches)
    first_s = time.perf_counter() - start_s
    drain(batches, AHEAD)
    here = psutil.Process()
    tree = [here, *here.children(recursive=True)]
    used = tree_mib(tree)
    drain(batches, 1)  # what was made while the memory was read
    start_s = time.perf_counter()
    count = sum(1 for _ in batches)
    rate = count * BATCH / (time.perf_counter() - start_s)
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
    readers = {
        name: read
        for name, read in READERS.items()
        if working(name, partial(read, one), "decoding")
    }
    small = stored(found[0][1], work)
    for round_ in range(rounds):
        for name, paths in found * PASSES:
            decode(name, paths, readers)
            decoders(name, paths)
        between(found[0][1], small)
        alone(prepared, "cache", round_)
        for name in random.sample(loaders, len(loaders)):
            if '"missing"' in alone(prepared, name, round_):
                loaders.remove(name)


if __name__ == "__main__":
    torch.set_num_threads(1)
    prepared = Path(sys.argv[1])
    match sys.argv[2:]:
        case ["cache", seed]:
            gather(open_level(prepared, {"decode": "cache"}), int(seed))
        case [name, _] if name in LOADERS:
            lacking = ("first batch", "memory") if name == "spdl" else ("first batch",)
            working(name, partial(transport, name, prepared), *lacking)
        case [work, rounds, *folder]:
            main(prepared, Path(work), int(rounds), Path(*folder) if folder else None)
