"""NVIDIA DALI on the CPU: a graph of C++ operators, https://docs.nvidia.com/deeplearning/dali."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from nvidia.dali import fn, math, pipeline_def, types

from feedrate.loading.libraries._feed import Made, Work

PACKAGES = ("nvidia-dali-cuda120",)
FORMS = ("best",)
LEAST_WORKERS = 1


def best(work: Work) -> Iterator[Made]:
    """Decoding with the exact IDCT, antialiased bicubic resizing, a centre crop; in our order."""
    side = work.dataset.image_px
    sizes: list[list[int]] = []

    def files() -> Iterator[list[np.ndarray]]:
        for numbers in work.order:
            sizes.append(numbers)
            paths = (work.dataset.paths[number] for number in numbers)
            yield [np.fromfile(path, dtype=np.uint8) for path in paths]

    def graph() -> Any:
        encoded = fn.external_source(source=files(), batch=True, dtype=types.UINT8)
        # The sizes of `resized_size`; the operator's own `resize_shorter` rounds in another way.
        size = fn.peek_image_shape(encoded)[:2]
        shorter = fn.reductions.min(size)
        wanted = math.floor(side * size / shorter)
        pictures = fn.decoders.image(encoded, device="cpu", jpeg_fancy_upsampling=True)
        resized = fn.resize(pictures, size=wanted, interp_type=types.INTERP_CUBIC, antialias=True)
        half = (wanted - side) / 2
        nearest = math.floor(half + 0.5)
        odd = nearest - 2 * math.floor(nearest / 2)
        start = nearest - odd * (half - math.floor(half) == 0.5)  # halves to even, as `crop_centre`
        start = fn.cast(start, dtype=types.INT32)
        crops = fn.slice(resized, start=start, shape=(side, side), axes=(0, 1))
        return fn.transpose(crops, perm=[2, 0, 1])

    options = {"batch_size": work.batch_size, "num_threads": work.workers, "device_id": None}
    pipeline = pipeline_def(graph, prefetch_queue_depth=work.ahead, **options)()
    pipeline.build()
    while True:
        try:
            (made,) = pipeline.run()
        except StopIteration:
            return
        yield sizes.pop(0), torch.from_numpy(np.array(made.as_tensor()))
