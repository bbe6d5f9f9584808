"""The loading path of another loader library, and the checks that its work equals that of ours."""

import itertools
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from contextlib import closing
from functools import partial
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

from feedrate.config.settings import LoaderSettings
from feedrate.config.spec import LIBRARIES, library_of
from feedrate.core import plugins
from feedrate.core.files import digest_file, replaced_folder
from feedrate.data.manifest import MANIFEST
from feedrate.devices.base import UnsupportedError
from feedrate.loading.dataset import PairDataset, collate
from feedrate.loading.decoders.host import crop_of
from feedrate.loading.path import Feed, FeedPath, levels
from feedrate.loading.pixels import Batch, crop_centre, resized_size
from feedrate.loading.stages import add, span
from feedrate.loading.workers import start_worker
from feedrate_loaders.libraries._rules import missing_packages


class Made(NamedTuple):
    """A batch of a library."""

    numbers: list[int]
    """The numbers of its samples."""
    pixels: torch.Tensor
    complete_s: float | None = None
    """When it was complete, by `perf_counter`; None: the library does not tell."""


Decode = Callable[[int, bytes], torch.Tensor]
"""The pixels of a row, uint8 (3, side, side), from the bytes of its file."""


class UnequalWorkError(Exception):
    """A library's batches are not those that were asked for: its rate would mean nothing."""


class Work(NamedTuple):
    """A request to a library."""

    dataset: PairDataset
    order: Iterable[list[int]]
    """The numbers of each batch; it may have no end."""
    batch_size: int
    workers: int
    ahead: int
    """Batches that may be ready or in the making before they are requested."""
    seed: int
    """For an order of the library's own."""
    length: int | None
    """Batches of this epoch; None: epochs follow one another without end."""

    def make(self, numbers: list[int]) -> Made:
        """One batch, by the run's own decode function; any number of threads may call this."""
        one_thread()
        return Made(numbers, self.dataset.pixels(numbers), perf_counter())

    @property
    def workers_of_torch(self) -> dict[str, Any]:
        """Arguments of torch's DataLoader, for a library that uses the DataLoader's workers."""
        return {
            "num_workers": self.workers,
            "prefetch_factor": -(-self.ahead // self.workers) if self.workers else None,
            "worker_init_fn": partial(start_worker, recorder=self.dataset.recorder),
            "multiprocessing_context": "fork" if self.workers else None,
        }


_here = threading.local()


def one_thread() -> None:
    """Give torch one thread in this thread of a library, as in a worker of ours. OpenMP keeps the
    setting by thread, MKL by process: `LibraryPath` restores it for the process."""
    if threading.current_thread() is not threading.main_thread() and not hasattr(_here, "limited"):
        torch.set_num_threads(1)
        _here.limited = True


def stored(dataset: PairDataset, name: str, write: Callable[[Path], None]) -> Path:
    """The folder with a split in a library's own format, which `write` fills once, completely or
    not at all. It is next to the stores of `decode: cache`."""
    digest = digest_file(dataset.prepared / MANIFEST)[:16]
    folder = dataset.prepared.parent / "store" / f"{name}-{dataset.split}-{digest}"
    if not folder.exists():
        with replaced_folder(folder) as fresh:
            write(fresh)
    return folder


def decoded(dataset: PairDataset, row: int, data: bytes) -> torch.Tensor:
    """A row's pixels, uint8 (3, side, side), by our decoder from the bytes of its file."""
    one_thread()
    return crop_of(dataset.paths[row], data, dataset.image_px).expand(dataset.shape)


def by_pillow(
    decode: Callable[[bytes], Image.Image], side: int, _row: int, data: bytes
) -> torch.Tensor:
    """A row's pixels from an RGB picture that `decode` gives; Pillow resizes its shorter side, with
    antialiased bicubic, and the centre is cropped."""
    with span("decode"):
        image = decode(data)
    height, width = resized_size(image.height, image.width, side)
    with span("resize"):
        resized = image.resize((width, height), Image.Resampling.BICUBIC)
        return crop_centre(torch.from_numpy(np.array(resized)).permute(2, 0, 1), side)


def stacked(samples: Sequence[tuple[int, torch.Tensor]]) -> Made:
    """A batch of single samples."""
    with span("collate", len(samples)):
        whole = torch.stack([pixels for _, pixels in samples])
    return Made([row for row, _ in samples], whole, perf_counter())


def rebatched(stream: Iterable[Made], size: int) -> Iterator[Made]:
    """Full batches of a stream in which each worker process ends with a smaller one."""
    rows: list[int] = []
    parts: list[torch.Tensor] = []
    for made in stream:
        if not rows and len(made.numbers) == size:
            yield made
            continue
        rows, parts = rows + made.numbers, [*parts, made.pixels]
        if len(rows) >= size:
            whole = torch.cat(parts)
            yield Made(rows[:size], whole[:size], perf_counter())
            rows, parts = rows[size:], [whole[size:]]


class LibraryPath(FeedPath):
    """Batches from a library, each compared with what was asked for."""

    def __init__(self, settings: LoaderSettings, *, pin_memory: bool) -> None:
        """Raise UnsupportedError if the library is not installed, or cannot be imported."""
        library = library_of(settings)
        self.decode, self.form = settings.decode, settings.form or "same"
        if missing := missing_packages(library, self.form):
            raise UnsupportedError(missing)
        threads = torch.get_num_threads()
        try:
            plugin = plugins.load(LIBRARIES, library)
        except ImportError as error:
            raise UnsupportedError(f"loader.library: {library}: {error}") from error
        torch.set_num_threads(threads)  # the model's; FFCV's import sets one
        packages = plugins.declared(LIBRARIES, "PACKAGES")[library]
        self.library = self.maker = f"{packages[0]} {metadata.version(packages[0])}"
        self.setting, self.timeout_s = f"loader.library: {self.library}", settings.timeout_s
        self._own_order = library in plugins.declared(LIBRARIES, "OWN_ORDER")
        self.round_size = max(1, settings.workers) * settings.prefetch_factor
        self._batches: Callable[[Work], Iterator[Made]] = getattr(plugin, self.form)
        self._settings, self._pin_memory = settings, pin_memory

    def wrap(self, loader: Any) -> Any:
        """As of FeedPath, but ranks cannot share an epoch of a library's own order."""
        if self._own_order and torch.distributed.is_initialized():
            why = "has its own order, which several ranks do not share; use one device"
            raise UnsupportedError(f"{self.setting} {why}")
        return super().wrap(loader)

    def feed(self, dataset: PairDataset, batch_size: int) -> Feed:  # noqa: ARG002
        """From a pipeline of their own."""
        return partial(self._complete, dataset)

    def read_levels(self, dataset: PairDataset, rows: list[int]) -> tuple[list[int], torch.Tensor]:
        """Pixels of these rows, or of as many in the library's own order."""
        with closing(self._made(dataset, [rows])) as made:
            numbers, pixels, _ = next(made)
            return numbers, levels(dataset, pixels.cpu())

    def _complete(self, dataset: PairDataset, order: Iterable[list[int]]) -> Iterator[Batch]:
        asked_s = perf_counter()
        for numbers, pixels, complete_s in self._made(dataset, order):
            if complete_s and self._settings.workers:  # handed over once complete and asked for
                add("hand_over", perf_counter() - max(asked_s, complete_s), 1)
            batch = collate({"pixel_values": pixels} | dataset.tokens_of(numbers))
            if self._pin_memory:
                batch["pixel_values"] = batch["pixel_values"].pin_memory()
            yield batch
            asked_s = perf_counter()

    def _made(self, dataset: PairDataset, order: Iterable[list[int]]) -> Generator[Made]:
        """The library's batches. Raises UnequalWorkError for one that is not as asked for."""
        asked: deque[list[int]] = deque()
        left = iter(order)
        if (first := next(left, None)) is None:
            return

        def note(numbers: list[int]) -> list[int]:
            asked.append(numbers)
            return numbers

        wanted, workers = map(note, itertools.chain([first], left)), self._settings.workers
        length = len(order) if isinstance(order, Sized) else None
        work = Work(dataset, wanted, len(first), workers, self.round_size, first[0], length)
        own, epoch = self._own_order, self._own_order and length is not None
        threads, seen = torch.get_num_threads(), set[int]()
        batches = itertools.starmap(Made, self._batches(work))
        for made in rebatched(batches, len(first)) if own else batches:
            if own and next(wanted, None) is None:
                return
            torch.set_num_threads(threads)  # see `one_thread`
            # Without an end, a library's buffer may mix an epoch with the next one.
            again = epoch and len(seen.union(made.numbers)) < len(seen) + len(made.numbers)
            self._check(dataset, asked.popleft(), made, again=again)
            seen.update(made.numbers if epoch else ())
            yield made
        if asked or any(True for _ in wanted):
            raise UnequalWorkError(f"{self.library} ended its epoch too early")

    def _check(self, dataset: PairDataset, asked: list[int], made: Made, *, again: bool) -> None:
        """Compare a batch with what was asked for: rows, type, layout and so bytes; `again`: one of
        its rows came before."""
        numbers, pixels, _ = made
        shape = len(asked), *dataset.shape
        if not self._own_order and numbers != asked:
            what = f"the rows {numbers[:3]} … in place of {asked[:3]} …"
        elif len(numbers) != len(asked):
            what = f"{len(numbers)} rows in place of {len(asked)}"
        elif again:
            what = "a row twice in one epoch"
        elif (*pixels.shape, pixels.dtype) != (*shape, dataset.dtype):
            what = f"{pixels.dtype} {tuple(pixels.shape)} in place of {dataset.dtype} {shape}"
        elif not pixels.is_contiguous():
            what = f"another layout (strides {pixels.stride()})"
        else:
            return
        raise UnequalWorkError(f"{self.library} does not do equal work: it delivered {what}")
