"""FFCV of MIT: one file of samples, read by code that Numba compiles, https://ffcv.io.

A thread of the library makes the batches in our order; `loader.workers` threads share each of them.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numba
import numpy as np
import torch
from ffcv import writer
from ffcv.fields import BytesField, IntField, NDArrayField, RGBImageField
from ffcv.fields.rgb_image import CenterCropRGBImageDecoder
from ffcv.loader import Loader
from ffcv.loader.epoch_iterator import EpochIterator
from ffcv.pipeline.operation import Operation
from PIL import Image

from feedrate.config.spec import LoadingStage
from feedrate.devices.base import UnsupportedError
from feedrate.devices.host import cores_granted
from feedrate.loading.dataset import PairDataset
from feedrate.loading.pixels import decoding
from feedrate.loading.stages import add
from feedrate_loaders.libraries._feed import Made, Work, decoded, stored

PACKAGES = ("ffcv", "numba", "opencv-python-headless")
INSTALL = "pip install --no-deps -r extras/loaders/requirements/ffcv.lock"
SYSTEM_PACKAGES = ("g++", "pkg-config", "libturbojpeg0-dev", "libopencv-dev")
FORMS = {"same": ("host", "cache"), "best": ("host",)}
LEAST_WORKERS = 1
FILE = "samples.beton"

numba.config.THREADING_LAYER = "threadsafe"  # two pipelines may compute at the same time


def same(work: Work) -> Iterator[Made]:
    """The bytes of files, decoded by our decoder; with `decode: cache` our pixels, its raw form."""
    return _batches(work, "pixels" if work.dataset.loader.decode == "cache" else "files")


def best(work: Work) -> Iterator[Made]:
    """JPEG of the library's default quality; it reads, decodes and resizes to its centre crop
    (OpenCV, INTER_AREA) in one call, which counts as the stage `decode`."""
    return _batches(work, "jpg")


def _batches(work: Work, form: str) -> Iterator[Made]:
    if work.workers > cores_granted():
        raise UnsupportedError(
            f"loader.workers: {work.workers}: ffcv starts at most one thread per core, and this "
            f"job has {cores_granted()}: use fewer workers"
        )
    loader = _loader(work.dataset, form, work.batch_size, work.workers, work.ahead)
    epoch = Epoch(loader, work.order)
    try:
        for rows, pixels, complete_s in epoch:
            if isinstance(pixels, Exception):
                raise pixels
            yield Made(rows.flatten().tolist(), pixels, complete_s)
    finally:
        epoch.close()
        epoch.join()


class Epoch(EpochIterator):
    """The library's thread, for batches that are asked for one after the other."""

    def __init__(self, loader: Loader, order: Iterable[list[int]]) -> None:
        self._order = order
        super().__init__(loader, [])

    def start(self) -> None:
        """Start, with batches made on request; the library itself would list all of them first."""
        self.iter_ixes = (np.array(rows, dtype=np.uint64) for rows in self._order)
        super().start()

    def run_pipeline(self, *given: Any) -> tuple[Any, ...]:
        """A batch, and when it was complete."""
        return *super().run_pipeline(*given), perf_counter()


class Step(Operation):
    """A step of the library's pipeline: a function of a batch, its rows and their metadata. The
    pipeline's thread would hide an exception, so it is returned as the batch."""

    def __init__(self, function: Callable[[Any, Any, Any], torch.Tensor]) -> None:
        super().__init__()
        self._function = function

    def declare_state_and_memory(self, previous_state: Any) -> tuple[Any, None]:
        """It is not compiled, and makes new memory: the library's is used again."""
        return replace(previous_state, jit_mode=False), None

    def generate_code(self) -> Callable[..., Any]:
        """The function as the library calls it."""

        def step(batch: Any, _memory: None, rows: Any) -> torch.Tensor | Exception:
            try:
                return self._function(batch, rows, self.metadata[rows])
            except Exception as error:
                return error

        step.with_indices = True  # type: ignore[attr-defined]
        return step


class Rows:
    """The fields of each row: its number, and its file, pixels or picture."""

    def __init__(self, pairs: PairDataset, form: str) -> None:
        self._pairs, self._form = pairs, form

    def __getitem__(self, row: int) -> tuple[int, np.ndarray[Any, Any]]:
        path = self._pairs.paths[row]
        if self._form == "pixels":
            return row, self._pairs.read(row).expand(self._pairs.shape).numpy()
        if self._form == "files":
            return row, np.fromfile(path, dtype=np.uint8)
        with decoding(path), Image.open(path) as image:
            return row, np.array(image.convert("RGB"))


@cache  # it is compiled once, not for each epoch
def _loader(pairs: PairDataset, form: str, batch_size: int, workers: int, ahead: int) -> Any:
    """The library's loader of a split in one of three forms: files, pixels or jpg."""
    side, threads = pairs.image_px, ThreadPoolExecutor(workers)
    stage: LoadingStage = "read"
    field: Any = BytesField()
    steps = [Step(partial(_decode, pairs, threads))]
    if form == "pixels":
        field = NDArrayField(np.dtype(np.uint8), pairs.shape)
        steps = [Step(lambda batch, *_: torch.tensor(batch))]
    elif form == "jpg":
        field, stage = RGBImageField(write_mode="jpg"), "decode"
        first = Step(lambda batch, *_: torch.from_numpy(batch).permute(0, 3, 1, 2).contiguous())
        steps = [CenterCropRGBImageDecoder((side, side), ratio=1), first]

    write = partial(_write, {"row": IntField(), "x": field}, Rows(pairs, form), len(pairs))
    folder = stored(pairs, f"ffcv-{form}-{side}" if form == "pixels" else f"ffcv-{form}", write)
    sizes = {"batch_size": batch_size, "num_workers": workers, "batches_ahead": ahead}
    # Without a seed it would draw a number from ours.
    loader = Loader(str(folder / FILE), **sizes, pipelines={"x": steps}, seed=0)
    ((compiled, made), *others), outputs = loader.code
    loader.code = [(partial(_timed, compiled, stage), made), *others], outputs
    return loader


def _write(fields: dict[str, Any], rows: Rows, count: int, folder: Path) -> None:
    """Write the library's file. Raises what reading a row raises."""

    def here(target: Callable[..., None], args: tuple[Any, ...]) -> Any:
        return SimpleNamespace(start=partial(target, *args))

    # The library would wait for ever for a writer that has died, so it writes in this process.
    with patch.object(writer, "Process", here):
        made = writer.DatasetWriter(str(folder / FILE), fields, num_workers=1)
        made.from_indexed_dataset(rows, np.arange(count))


def _timed(compiled: Callable[..., Any], stage: LoadingStage, **given: Any) -> Any:
    """The result of the library's compiled code; the CPU time of its threads is unknown."""
    start_s = perf_counter()
    result = compiled(**given)
    add(stage, perf_counter() - start_s, len(given["batch_indices"]))
    return result


def _decode(
    pairs: PairDataset, threads: ThreadPoolExecutor, files: Any, rows: Any, metadata: Any
) -> torch.Tensor:
    data = (file[:size].tobytes() for file, size in zip(files, metadata["size"], strict=True))
    return torch.stack(list(threads.map(partial(decoded, pairs), rows.tolist(), data)))
