"""The cost of measuring time by stage: the loader alone, with stages recorded and without."""

import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from time import process_time
from typing import Any

from benchmarks.default_study import ROOT, prepare_default
from benchmarks.figure import Figure

PAIRS = {"host": 120, "threads": 120, "cache": 2_000}
"""Pairs of batches: the effect is smaller than the noise of a few."""
THREADS = 2
"""Threads that load at the same time in `threads`; worker processes have memory of their own, so
each is as a loader without workers."""
GOAL = 1.0
PUBLISHED = 106.0
"""The highest published rate of one device, samples/s: 847.7 of eight Gaudi2
(config/published/bridgetower-dataloading.csv)."""


def measure() -> Iterator[Figure]:
    """CPU time that recording adds to a loader without workers, % of its CPU time without it.

    Both make the same batch, one after the other in random order. A training step takes longer than
    its batch, so the share of a step is smaller.
    """
    with tempfile.TemporaryDirectory() as name:
        prepared = prepare_default(Path(name))
        command = [sys.executable, "-m", "benchmarks.stages", str(prepared)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        said = subprocess.run(
            command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
        )
        told = [line.split() for line in said.stdout.splitlines()]
        costs = {level: map(float, rest) for level, *rest in told if level in PAIRS}
        for level, name in {"host": "host alone", "threads": f"host, {THREADS} threads"}.items():
            added, half, sample_us = costs[level]
            note = f"+/- {half:.2f} (95%), {sample_us:.0f} us a sample"
            yield Figure(f"time by stage, {name}: on against off", added, GOAL, "%", note)
        added, _, sample_us = costs["cache"]
        note = f"{added:.1f}% of the cache alone; goal: 1% of a sample at {PUBLISHED:.0f}/s"
        added_us = added / 100 * sample_us
        yield Figure("time by stage, cache: added", added_us, 1e4 / PUBLISHED, "us/sample", note)


def cost(prepared: Path, level: str) -> tuple[float, float, float]:
    """Mean cost in %, half of its 95% interval, and the time of a sample, us."""
    import torch

    from benchmarks.drain import BATCH, open_level
    from feedrate.loading.stages import Recorder

    torch.set_num_threads(1)
    dataset = open_level(prepared, {"decode": "cache" if level == "cache" else "host"})
    choose, threads = random.Random(0), THREADS if level == "threads" else 0
    recorder = Recorder(threads)
    recorder.attach(0)
    make: Callable[[list[int]], object] = dataset.batch
    if threads:
        numbers = count(1)
        pool = ThreadPoolExecutor(threads, "", lambda: start_thread(recorder, next(numbers)))

        def make(rows: list[int]) -> object:
            return list(pool.map(dataset.batch, [rows[part::threads] for part in range(threads)]))

    ratios, batches_s = [], []
    for _ in range(PAIRS[level]):
        rows = choose.sample(range(len(dataset)), BATCH)
        make(rows)  # the files' pages and the processor's caches are as warm for both
        used_s = {}
        for recorded in choose.sample((False, True), 2):
            with recorder.recording() if recorded else nullcontext():
                start_s = process_time()
                make(rows)
                used_s[recorded] = process_time() - start_s
        ratios.append(math.log(used_s[True] / used_s[False]))
        batches_s.append(used_s[False])
    # Interruptions make long tails: a tenth at each end does not count.
    cut = len(ratios) // 10
    kept = sorted(ratios)[cut:-cut]
    half = 1.96 * statistics.stdev(kept) / math.sqrt(len(kept))
    sample_us = 1e6 * statistics.median(batches_s) / BATCH
    return 100 * math.expm1(statistics.mean(kept)), 100 * half, sample_us


def start_thread(recorder: Any, number: int) -> None:
    """As a worker that is a thread."""
    import torch

    torch.set_num_threads(1)
    recorder.attach(number, thread=True)


if __name__ == "__main__":
    for each in PAIRS:
        print(each, *(f"{number:.3f}" for number in cost(Path(sys.argv[1]), each)))
