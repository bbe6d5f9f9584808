"""The decode paths of the loader against the reference, in interleaved rounds of one process."""

import gc
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import psutil

from benchmarks.default_study import ROOT, default_spec, make_store_for, prepare_default, run_worker
from benchmarks.figure import Figure
from feedrate.config.settings import LoaderSettings, ModelSettings, Settings
from feedrate.config.spec import RunSpec
from feedrate.config.values import convert

BATCH, PX, TOKENS = 48, 294, 128
"""Values of the published study."""
ROUNDS = 5
LEVELS: dict[str, tuple[dict[str, Any], int]] = {
    "reference": ({"decode": "reference"}, 5),
    "host": ({"decode": "host"}, 12),
    "host scaled": ({"decode": "host", "scaled_decode": True}, 16),
    "cache": ({"decode": "cache"}, 300),
}
"""Settings, and batches of a drain, which takes about a second."""
WORKERS = (0, 1, 2)
PER_CPU_GOALS = {"host": 3.0, "host scaled": 4.0}
"""Samples per CPU second relative to the reference."""
CACHE_GOALS = {0: 100.0, 1: 20.0, 2: 20.0}
"""Samples per second relative to the reference, by workers."""


class Order:
    """A given number of batches of random rows."""

    batch_size = BATCH

    def __init__(self, rows: int, batches: int, seed: int) -> None:
        choose = random.Random(seed)
        self._batches = [choose.sample(range(rows), BATCH) for _ in range(batches)]

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._batches)


def measure() -> Iterator[Figure]:
    """Medians of the ratios within each round."""
    with tempfile.TemporaryDirectory() as name:
        prepared = prepare_default(Path(name))
        # In a process of its own, with one thread, as in a worker, which it is compared with.
        command = [sys.executable, "-m", "benchmarks.loading", str(prepared)]
        drains = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        yield from figures([json.loads(line) for line in drains.stdout.splitlines()])
        yield data_wait(Path(name), prepared)


def figures(rows: list[dict[str, Any]]) -> Iterator[Figure]:
    """The ratios to the reference."""

    def values(level: str, workers: int, name: str) -> list[float]:
        same = (r for r in rows if r.get("level") == level and r.get("workers") == workers)
        return [row[name] for row in same]

    def ratio(level: str, workers: int, name: str) -> tuple[float, str]:
        ours, reference = values(level, workers, name), values("reference", workers, name)
        note = f"{median(ours):.3g}, reference {median(reference):.3g}"
        return median(a / b for a, b in zip(ours, reference, strict=True)), note

    for level, goal in PER_CPU_GOALS.items():
        for workers in WORKERS:
            value, note = ratio(level, workers, "per_cpu_s")
            name = f"{level}: samples per CPU second, {workers} workers"
            yield Figure(name, value, goal, "x", note, at_most=False)
    for workers, goal in CACHE_GOALS.items():
        value, note = ratio("cache", workers, "per_s")
        name = f"cache: samples per second, {workers} workers"
        yield Figure(name, value, goal, "x", note, at_most=False)
    for level in ("host", "cache"):
        for key, what in (("startup_s", "first batch"), ("worker_mib", "memory of a worker")):
            value, note = ratio(level, 2, key)
            yield Figure(f"{level}: {what}, against the reference", value, 1, "x", note)


def data_wait(folder: Path, prepared: Path) -> Figure:
    """Data wait in a job of the default study at the best setting: the cache without workers."""
    spec = default_spec()
    spec["settings"]["loader"] |= {"decode": "cache", "workers": 0}
    settings = convert(spec, RunSpec, "default study").settings
    store = str(make_store_for(settings, prepared, folder))
    steps = run_worker(spec, prepared, folder / "cached", json.dumps({"store": store}))
    steps = [step for step in steps if not step["warmup"]]
    waits = median(e["data_wait_s"] / e["step_s"] for e in steps)
    note = f"of {median(e['step_s'] for e in steps) * 1e3:.0f} ms a step"
    return Figure("cache: waiting for data, default study", 100 * waits, 1, "% of step", note)


def drain_all(prepared: Path) -> None:
    """Drain the loaders of all decode paths, interleaved; print one JSON object a line."""
    import torch

    from feedrate.loading.path import HostPath

    torch.set_num_threads(1)
    datasets = {level: open_level(prepared, settings) for level, (settings, _) in LEVELS.items()}
    for round_ in range(ROUNDS):
        for workers in WORKERS:
            for level, (settings, batches) in LEVELS.items():
                path = HostPath(LoaderSettings(**settings, workers=workers), pin_memory=False)
                order = Order(len(datasets[level]), batches, round_)
                row = {"level": level, "workers": workers, **drain(datasets[level], path, order)}
                print(json.dumps(row), flush=True)


def open_level(prepared: Path, values: dict[str, Any]) -> Any:
    """The training split on a decode path; its store is made if it needs one."""
    from transformers import PreTrainedTokenizerFast

    from feedrate.loading.dataset import PairDataset

    settings = Settings(
        model=ModelSettings(name="bridgetower", size="large"),
        loader=LoaderSettings(**values, max_tokens=TOKENS),
    )
    is_stored = values["decode"] == "cache"
    half = (0.5, 0.5, 0.5)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(prepared / "tokenizer")
    model = SimpleNamespace(tokenizer=tokenizer, image_px=PX, mean=half, std=half, column="caption")
    store = make_store_for(settings, prepared, prepared.parent) if is_stored else ""
    return PairDataset(prepared, "train", model, settings.loader, store)


def drain(dataset: Any, path: Any, order: Order) -> dict[str, float]:
    """Samples per CPU second (workers' and start included) and per second after the first batch."""
    gc.collect()
    cpu_s, start_s = used_cpu_s(), time.perf_counter()
    batches = path.batches(dataset, order)
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
        "per_cpu_s": (samples + later) / (used_cpu_s() - cpu_s),
        "per_s": later / wall_s,
        "startup_s": first_s - start_s,
        "worker_mib": max(private, default=0.0),
    }


def used_cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(use.ru_utime + use.ru_stime for use in map(resource.getrusage, who))


if __name__ == "__main__":
    drain_all(Path(sys.argv[1]))
