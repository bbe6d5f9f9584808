"""NVIDIA DALI: a graph of C++ operators, https://docs.nvidia.com/deeplearning/dali.

With `decode: device` its own form runs on an NVIDIA GPU, from the bytes of the files on.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from nvidia.dali import fn, math, pipeline_def, types
from torch.utils.dlpack import from_dlpack

from feedrate.loading.decoders.nvjpeg import SideStream
from feedrate.loading.path import in_order
from feedrate.loading.stages import span
from feedrate_loaders.libraries._feed import Made, Work

PACKAGES = ("nvidia-dali-cuda120",)
INSTALL = "pip install --no-deps -r extras/loaders/requirements/dali.lock"
FORMS = {"same": ("reference", "host", "cache"), "best": ("host", "device")}
SILENT = ("best",)
LEAST_WORKERS = 1


def same(work: Work) -> Iterator[Made]:
    """A graph without a decoder: threads make batches with the run's decode function. The library's
    own workers are processes, which it cannot fork once CUDA is in use."""
    made: deque[Made] = deque()

    def batches() -> Iterator[np.ndarray]:
        threads = ThreadPoolExecutor(work.workers)
        for one in in_order(threads, work.make, work.order, work.ahead):
            made.append(one)
            yield one.pixels.numpy()

    for pixels in _run(work, lambda: fn.external_source(source=batches(), batch=True), 1):
        yield made.popleft()._replace(pixels=pixels)


def best(work: Work) -> Iterator[Made]:
    """Decoding with the exact IDCT, antialiased bicubic resizing, a centre crop; in our order."""
    side = work.dataset.image_px
    asked: deque[list[int]] = deque()
    gpu = _gpu() if work.dataset.loader.decode == "device" else None  # of this rank

    def files() -> Iterator[list[np.ndarray]]:
        for numbers in work.order:
            asked.append(numbers)
            with span("read", len(numbers)):
                read = [np.fromfile(work.dataset.paths[one], dtype=np.uint8) for one in numbers]
            yield read

    def graph() -> Any:
        encoded = fn.external_source(source=files(), batch=True, dtype=types.UINT8)
        # The sizes of `resized_size`; the operator's own `resize_shorter` rounds in another way.
        size = fn.peek_image_shape(encoded)[:2]
        shorter = fn.reductions.min(size)
        wanted = math.floor(side * size / shorter)
        where = "mixed" if gpu and gpu.type == "cuda" else "cpu"
        pictures = fn.decoders.image(encoded, device=where, jpeg_fancy_upsampling=True)
        resized = fn.resize(pictures, size=wanted, interp_type=types.INTERP_CUBIC, antialias=True)
        half = (wanted - side) / 2
        nearest = math.floor(half + 0.5)
        odd = nearest - 2 * math.floor(nearest / 2)
        start = nearest - odd * (half - math.floor(half) == 0.5)  # halves to even, as `crop_centre`
        start = fn.cast(start, dtype=types.INT32)
        crops = fn.slice(resized, start=start, shape=(side, side), axes=(0, 1))
        return fn.transpose(crops, perm=[2, 0, 1])

    for pixels in _run(work, graph, work.ahead, gpu):
        yield Made(asked.popleft(), pixels)


def _gpu() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


def _run(
    work: Work, graph: Callable[[], Any], ahead: int, gpu: torch.device | None = None
) -> Iterator[torch.Tensor]:
    options: dict[str, Any] = {"batch_size": work.batch_size, "num_threads": work.workers}
    options |= {"device_id": gpu.index if gpu else None, "prefetch_queue_depth": ahead}
    pipeline = pipeline_def(graph, **options)()
    pipeline.build()
    stream = SideStream(gpu or torch.device("cpu"))
    while True:
        try:
            (made,) = pipeline.run()
        except StopIteration:
            return
        with stream():  # until the copy has ended: the library writes to its memory again
            pixels = from_dlpack(made.as_tensor()).clone()
        stream.hand_over([pixels])
        yield pixels
