"""SPDL of Meta: threads in a pipeline, and FFmpeg, https://github.com/facebookresearch/spdl."""

from collections.abc import Callable, Iterator
from time import perf_counter

import spdl.io
from spdl.pipeline import PipelineBuilder

from feedrate.loading.stages import span
from feedrate_loaders.libraries._feed import Made, Work

PACKAGES = ("spdl-core", "spdl-io")
INSTALL = "pip install --no-deps -r extras/loaders/requirements/spdl.lock"
FORMS = {"same": ("reference", "host", "cache"), "best": ("host",)}
LOADS = {"best": ("ffmpeg", "avdevice", 58, 63)}
"""FFmpeg 4 to 9; libavdevice needs all of its other libraries."""
LEAST_WORKERS = 1


def same(work: Work) -> Iterator[Made]:
    """Each thread makes a batch with the run's decode function."""
    return _piped(work, work.make)


def best(work: Work) -> Iterator[Made]:
    """Each thread decodes, scales (bicubic), crops (the centre) and stacks a batch with FFmpeg: one
    call of `load_image_batch`, which counts as the stage `decode`."""
    dataset, side = work.dataset, work.dataset.image_px
    # The sizes of `resized_size`; the library's own filter would round them in another way.
    width, height = f"max({side},trunc({side}*iw/ih))", f"max({side},trunc({side}*ih/iw))"
    scale = f"scale=w='{width}':h='{height}':flags=bicubic+accurate_rnd+full_chroma_int"
    filters = f"{scale},format=pix_fmts=rgb24,crop=w={side}:h={side}"

    def load(numbers: list[int]) -> Made:
        paths = [str(dataset.paths[number]) for number in numbers]
        with span("decode", len(numbers)):
            made = spdl.io.load_image_batch(paths, width=None, height=None, filter_desc=filters)
            pixels = spdl.io.to_torch(made)
        with span("collate", len(numbers)):
            pixels = pixels.permute(0, 3, 1, 2).contiguous()
        return Made(numbers, pixels, perf_counter())

    return _piped(work, load)


def _piped(work: Work, make: Callable[[list[int]], Made]) -> Iterator[Made]:
    builder = PipelineBuilder().add_source(work.order)
    builder = builder.pipe(make, concurrency=work.workers, output_order="input")
    pipeline = builder.add_sink(work.ahead).build(num_threads=work.workers, max_failures=0)
    with pipeline.auto_stop():
        yield from pipeline
