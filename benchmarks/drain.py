"""`python -m benchmarks.drain PREPARED ROUNDS`: drain the loaders of all decode
paths, interleaved.

Prints one JSON object a line: the name of a measurement (`what`), and its numbers.
"""

import gc
import json
import random
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import simplejpeg
import torch
from PIL import Image
from transformers import PreTrainedTokenizerFast

from feedrate.config.settings import LoaderSettings, ModelSettings, Settings
from feedrate.data.manifest import STORE_INDEX, store_folder, store_spec
from feedrate.jobs.store import write_store
from feedrate.loading.dataset import PairDataset
from feedrate.loading.decoders.host import crop_of
from feedrate.loading.path import HostPath, distance
from feedrate.loading.pixels import crop_centre, resized_size

BATCH, PX, TOKENS = 48, 294, 128
"""Values of the published study."""
LEVELS: dict[str, tuple[dict[str, Any], int]] = {
    "reference": ({"decode": "reference"}, 5),
    "host": ({"decode": "host"}, 12),
    "host scaled": ({"decode": "host", "scaled_decode": True}, 16),
    "cache": ({"decode": "cache"}, 300),
}
"""Settings and batches of a drain, which takes about a second."""
WORKERS = (0, 1, 2)


class Order:
    """A given number of batches of random rows."""

    batch_size = BATCH

    def __init__(self, rows: int, batches: int, seed: int) -> None:
        choose = random.Random(seed)
        self._batches = [choose.sample(range(rows), BATCH) for _ in range(batches)]

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._batches)


def main(prepared: Path, rounds: int) -> None:
    """Take all measurements, in rounds."""
    torch.set_num_threads(1)  # as in a worker, which this process is compared with
    datasets = {level: open_level(prepared, settings) for level, (settings, _) in LEVELS.items()}
    show("pixels", **compare_pixels(datasets))
    for round_ in range(rounds):
        for workers in WORKERS:
            for level, (settings, batches) in LEVELS.items():
                loader = LoaderSettings(**settings, workers=workers)
                order = Order(len(datasets[level]), batches, round_)
                show("drain", level=level, workers=workers, **drain(datasets[level], loader, order))
        show("limits", **limits(datasets["host"]))


def show(what: str, **numbers: Any) -> None:
    """Print a measurement."""
    print(json.dumps({"what": what, **numbers}), flush=True)


def open_level(prepared: Path, values: dict[str, Any]) -> PairDataset:
    """The training split on a decode path; its store is made if it needs one."""
    settings = Settings(
        model=ModelSettings(name="bridgetower", size="large"),
        loader=LoaderSettings(**values, max_tokens=TOKENS),
    )
    tokenizer = PreTrainedTokenizerFast.from_pretrained(prepared / "tokenizer")
    store = store_folder(settings, prepared)
    if store:
        spec = store_spec(settings)
        assert spec is not None
        write_store(prepared, spec, tokenizer, PX, store / STORE_INDEX, len(WORKERS) - 1)
    return PairDataset(
        prepared,
        "train",
        tokenizer,
        image_px=PX,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        loader=settings.loader,
        store=store,
    )


def drain(dataset: PairDataset, loader: LoaderSettings, order: Order) -> dict[str, float]:
    """Samples per CPU second (workers' and start included) and per second after the first batch."""
    gc.collect()
    cpu_s, start_s = used_s(), time.perf_counter()
    batches = HostPath(loader, pin_memory=False).batches(dataset, order)
    samples = len(next(batches)["input_ids"])
    first_s = time.perf_counter()
    private = [worker.memory_full_info().uss / 2**20 for worker in psutil.Process().children()]
    begin_s, later = time.perf_counter(), 0
    for batch in batches:
        later += len(batch["input_ids"])
    wall_s = time.perf_counter() - begin_s
    del batches, batch
    gc.collect()
    return {
        "per_cpu_s": (samples + later) / (used_s() - cpu_s),
        "per_s": later / wall_s,
        "startup_s": first_s - start_s,
        "worker_mib": max(private, default=0.0),
    }


def used_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(use.ru_utime + use.ru_stime for use in map(resource.getrusage, who))


def compare_pixels(datasets: dict[str, PairDataset]) -> dict[str, float]:
    """Mean absolute differences, of 255: of `host` to Pillow in uint8 with the same geometry, and
    of each decode path to the reference."""
    off = []
    for path in datasets["host"].paths[:48]:
        with Image.open(path) as opened:
            image = opened if opened.mode == "L" else opened.convert("RGB")
            height, width = resized_size(image.height, image.width, PX)
            small = np.array(image.resize((width, height), Image.Resampling.BICUBIC))
        wanted = crop_centre(torch.from_numpy(np.atleast_3d(small)).permute(2, 0, 1), PX)
        found = crop_of(path, path.read_bytes(), PX)
        off.append(float((found.float() - wanted.float()).abs().mean()))
    told = {"to Pillow": sum(off) / len(off)}
    for level in ("host", "host scaled", "cache"):
        found_at = distance(
            datasets[level], HostPath(LoaderSettings(**LEVELS[level][0]), pin_memory=False)
        )
        told |= {level: found_at.mean_abs_diff, f"{level}, dB": found_at.psnr_db or float("inf")}
    return told


def limits(dataset: PairDataset) -> dict[str, float]:
    """Limits of any loader on one core: only decoding, in full and scaled, and only copying."""
    files = [path.read_bytes() for path in dataset.paths[:96]]
    sizes = [simplejpeg.decode_jpeg_header(data) for data in files]

    def decode_all(*, scaled: bool) -> float:
        start_s = time.process_time()
        for data, (height, width, colours, _) in zip(files, sizes, strict=True):
            factor = max((n for n in (1, 2, 4, 8) if min(height, width) // n >= PX), default=1)
            least = (-(-height // factor), -(-width // factor)) if scaled else (0, 0)
            kind = "GRAY" if colours == "Gray" else "RGB"
            simplejpeg.decode_jpeg(data, kind, min_height=least[0], min_width=least[1])
        return len(files) / (time.process_time() - start_s)

    source = torch.ones((BATCH, 3, PX, PX), dtype=torch.uint8)
    target = torch.zeros_like(source)
    copies = []
    for _ in range(20):
        start_s = time.perf_counter()
        target.copy_(source)
        copies.append(time.perf_counter() - start_s)
    return {
        "full": decode_all(scaled=False),
        "scaled": decode_all(scaled=True),
        "copy": BATCH / median(copies),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
