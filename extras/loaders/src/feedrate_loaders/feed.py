"""The job of `certify`: for each decode path and loader library that decodes here,
it drains a loader with all cores, then finds the largest number of emulated accelerators that this
host keeps busy for the share `BUSY` of the time."""

import math
import timeit
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, get_args

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from feedrate.config.settings import Decode
from feedrate.config.spec import LIBRARIES, RunSpec, loader_faults
from feedrate.config.values import Count, Strict, about
from feedrate.core import plugins
from feedrate.core.errors import tell
from feedrate.core.files import write_json
from feedrate.jobs.worker import bind_process, classify
from feedrate.loading.workers import end_process_on_hang
from feedrate_loaders.accelerator import BUSY, Feeding, accelerator, hear, measure, process

ANSWER = "fed.json"
COMPARED = 64
"""Rows whose files are looked at for their sizes."""
COPIED_BYTES = 2**29
NOT_DECODED = "nothing is decoded at run time"


class Level(Strict, frozen=True):
    """A decode path, or a loader library in one of its forms."""

    decode: Decode
    scaled: bool = False
    library: str = ""
    best: bool = False

    @property
    def name(self) -> str:
        """The name of a library comes first."""
        words = (self.library, "best" if self.best else self.decode, "scaled" * self.scaled)
        return " ".join(filter(None, words))

    def change(self, spec: RunSpec, **values: Any) -> RunSpec:
        """A run with its settings of `loader`, and other `values` of it."""
        values |= {"library": self.library or UNSET, "form": "best" if self.best else UNSET}
        values |= {"decode": self.decode, "scaled_decode": self.scaled}
        loader = replace(spec.settings.loader, **values)
        return replace(spec, settings=replace(spec.settings, loader=loader))


PATHS = (*map(Level, get_args(Decode)), Level("host", scaled=True))
"""All decode paths."""


class Request(Strict, frozen=True, kw_only=True):
    """The accelerator to emulate: an accelerator's steps without data wait, s, replayed in turn."""

    step_s: list[float]
    levels: tuple[Level, ...] = PATHS
    most: Count = 64
    """No more accelerators are tried."""


class Fed(Strict, frozen=True, kw_only=True):
    """The measurements of a decode path, or why there is no certificate for it."""

    level: Level
    refused: str = ""
    limit: Annotated[Feeding | None, about("The loader alone, without pauses.")] = None
    runs: Annotated[list[Feeding], about("In the order in which their numbers were tried.")] = []

    @property
    def tried(self) -> str:
        """How busy the least busy accelerator was, by their number."""
        runs = sorted(self.runs, key=lambda run: run.accelerators)
        return ", ".join(f"{run.accelerators} busy {min(run.busy):.1%}" for run in runs)


class Answer(Strict, frozen=True, kw_only=True):
    """All measurements."""

    cores: int
    rows: int
    file_bytes: Annotated[float, about("Mean size of a row's file.")]
    picture_bytes: Annotated[float, about("Mean size of its decoded pixels, a byte a channel.")]
    crop_bytes: Annotated[float, about("Size of the pixels that the model takes, as bytes.")]
    copy_bytes_per_s: Annotated[float, about("Read and written when all cores copy memory.")]
    fed: list[Fed]


def count_fed(samples_per_s: float, step_s: Sequence[float], batch_size: int) -> float:
    """How many accelerators a loader of this rate keeps `BUSY`: its rate over what they take."""
    return samples_per_s * fmean(step_s) / batch_size / BUSY


def feed_accelerators(run: Path, data: Path, request: Request) -> None:
    """Find for each decode path how many accelerators this host feeds.

    --run       folder with spec.json, for the answer
    --data      folder of the prepared dataset
    --request   the pace, and the decode paths
    """
    end_process_on_hang(lambda error: tell("feedrate feed", error))
    spec, placement = bind_process(run)
    host = Host(spec, data, placement.cores_of_rank(1))
    fed = []
    for level in request.levels:
        fed.append(host.certify(level, request))
        tell("feedrate certify", f"{level.name}: {fed[-1].tried or 'refused'}")
    answer = Answer(cores=host.cores, fed=fed, **host.sizes(), copy_bytes_per_s=host.copy_rate())
    write_json(run / ANSWER, msgspec.to_builtins(answer))


class Host:
    """The cores of this host, with a dataset to feed from. Makes torch use one thread, because it
    forks accelerators."""

    def __init__(self, spec: RunSpec, prepared: Path, cores: int) -> None:
        """Raise ConfigError if the dataset does not fill a batch."""
        # Importing torch starts its threads, so the process must be bound before.
        import torch

        from feedrate.devices.base import adapter
        from feedrate.jobs.job_setup import check_rows
        from feedrate.models.build import build_bare

        torch.set_num_threads(1)
        check_rows(spec, prepared)
        self.cores = cores
        self._spec, self._prepared = spec, prepared
        self._device = adapter(spec.kind, 0, 1)
        self._built = build_bare(spec.settings.model, spec.settings.loader, prepared)

    def certify(self, level: Level, request: Request) -> Fed:
        """Feed as many accelerators as this host can from a decode path that decodes here."""
        size = self._spec.settings.train.batch_size
        try:
            for why in self.refusals(level):
                return Fed(level=level, refused=why)
            dataset = self.dataset(level)
            if not self.decodes(level, dataset):
                return Fed(level=level, refused=NOT_DECODED)
            limit = self.feed(level, dataset, 1, [0.0])
            first = int(count_fed(limit.samples_per_s, request.step_s, size))
            if first > self.cores:  # so many loaders take turns on the cores, which costs time
                limit = self.feed(level, dataset, min(first, request.most), [0.0])
                first = int(count_fed(limit.samples_per_s, request.step_s, size))
            run = partial(self.feed, level, dataset, step_s=request.step_s)
            return Fed(level=level, limit=limit, runs=list(search(run, first, request.most)))
        except Exception as error:  # a decode path that fails must not end the others
            return Fed(level=level, refused=classify(error).message)

    def refusals(self, level: Level) -> Iterator[str]:
        """Why a decode path gets no certificate, before its dataset is opened."""
        settings = level.change(self._spec, workers=1).settings
        yield from loader_faults(settings.loader)
        if level.decode == "device":
            yield "pictures are decoded on the accelerator, and the accelerators are emulated"
        if settings.loader.decode == "cache":
            yield NOT_DECODED

    def dataset(self, level: Level) -> Any:
        """The rows as the decode path reads them."""
        from feedrate.loading.dataset import PairDataset

        loader = level.change(self._spec).settings.loader
        return PairDataset(self._prepared, "train", self._built, loader)

    def path(self, level: Level, workers: int) -> Any:
        """The loading path of a level, with so many workers."""
        from feedrate.loading.path import open_path

        changed = level.change(self._spec, workers=workers)
        return open_path(self._device, changed.settings.loader)

    def decodes(self, level: Level, dataset: Any) -> bool:
        """Whether a level decodes the same rows again at a second draw, as its spans show; true
        without a test for a form of a library that records no stage."""
        from torch.utils.data import BatchSampler

        from feedrate.loading.stages import Recorder

        silent, least = (plugins.declared(LIBRARIES, fact) for fact in ("SILENT", "LEAST_WORKERS"))
        if ("best" if level.best else "same") in silent.get(level.library, ()):
            return True
        path, recorder = self.path(level, least.get(level.library, 0)), Recorder(workers=0)

        def draw_twice(pipe: Connection) -> None:
            recorder.attach(0)
            for _ in range(2):
                with recorder.recording():
                    list(path.batches(dataset, BatchSampler(range(4), 4, False)))
                pipe.send("decode" in recorder.spans(1, 4))

        # In a process of its own: the threads of some libraries do not survive the next fork.
        with process(draw_twice) as pipe:
            return bool(hear(pipe) and hear(pipe))

    def feed(self, level: Level, dataset: Any, count: int, step_s: Sequence[float]) -> Feeding:
        """Feed `count` accelerators at this pace. Raises FeedError if one of them fails."""
        from feedrate.jobs.blocks import EndlessBatches

        workers, size = math.ceil(self.cores / count), self._spec.settings.train.batch_size
        path, seed = self.path(level, workers), self._spec.seed
        with ExitStack() as stack:
            pipes = []
            for number in range(count):
                order = EndlessBatches(len(dataset), size, seed + number)
                emulated = partial(accelerator, path, dataset, order, step_s)
                pipes.append(stack.enter_context(process(emulated)))
            return measure(pipes, path.round_size, step_s, workers)

    def sizes(self) -> dict[str, Any]:
        """Rows, and mean bytes of files, decoded pictures and crops."""
        from PIL import Image

        dataset = self.dataset(Level("host"))
        paths, pictures = dataset.paths[:: max(1, len(dataset) // COMPARED)], []
        for path in paths:
            with Image.open(path) as opened:
                pictures.append(opened.width * opened.height * len(opened.getbands()))
        files = fmean(path.stat().st_size for path in paths)
        sizes = {"file_bytes": files, "picture_bytes": fmean(pictures)}
        return sizes | {"rows": len(dataset), "crop_bytes": float(math.prod(dataset.shape))}

    def copy_rate(self) -> float:
        """Bytes/s that all cores read and write when they copy memory; the best of five. Call it
        last: torch's threads do not survive a fork."""
        import torch

        torch.set_num_threads(self.cores)
        source = torch.ones(COPIED_BYTES, dtype=torch.uint8)
        target = torch.zeros_like(source)
        return 2 * COPIED_BYTES / min(timeit.repeat(lambda: target.copy_(source), number=1))


def search(run: Callable[[int], Feeding], first: int, most: int) -> Iterator[Feeding]:
    """Feed the expected number of accelerators, then more or fewer, until the largest number that
    is fed is known: one more is not, or it is `most`."""
    count = min(max(1, first), most)
    yield (feeding := run(count))
    step = 1 if feeding.fed else -1
    while feeding.fed == (step > 0) and 1 <= (count := count + step) <= most:
        yield (feeding := run(count))
