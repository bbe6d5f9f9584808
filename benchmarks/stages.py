"""The cost of measuring time by stage: the loader alone, with stages recorded and without."""

import math
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import process_time

from benchmarks.default_study import prepare_default
from benchmarks.figure import Figure
from benchmarks.process import run

PAIRS = {"host": 120, "cache": 2_000}
"""Pairs of batches: the effect is smaller than the noise of a few."""
GOAL = 1.0


def measure() -> Iterator[Figure]:
    """CPU time that recording adds to a loader without workers, % of its CPU time without it.

    Both make the same batch, one after the other in random order. A training step takes longer than
    its batch, so the share of a step is smaller.
    """
    with tempfile.TemporaryDirectory() as name:
        prepared = prepare_default(Path(name))
        command = [sys.executable, "-m", "benchmarks.stages", str(prepared)]
        said = run(command, Path(name), {**os.environ, "OMP_NUM_THREADS": "1"})
        for line in said.output.splitlines():
            level, cost, half, batch_ms = line.split()
            note = f"+/- {half} (95%), batches of {batch_ms} ms"
            yield Figure(f"time by stage, {level}: on against off", float(cost), GOAL, "%", note)


def cost(prepared: Path, level: str) -> tuple[float, float, float]:
    """Mean cost in %, half of its 95% interval, and the time of a batch, ms."""
    import torch

    from benchmarks.drain import BATCH, open_level
    from feedrate.loading.stages import Recorder

    torch.set_num_threads(1)
    dataset = open_level(prepared, {"decode": level})
    choose, recorder = random.Random(0), Recorder(0)
    recorder.attach(0)
    ratios, batches_s = [], []
    for _ in range(PAIRS[level]):
        rows = choose.sample(range(len(dataset)), BATCH)
        dataset.batch(rows)  # the files' pages and the processor's caches are as warm for both
        used_s = {}
        for recorded in choose.sample((False, True), 2):
            start_s = process_time()
            if recorded:
                with recorder.recording():
                    dataset.batch(rows)
            else:
                dataset.batch(rows)
            used_s[recorded] = process_time() - start_s
        ratios.append(math.log(used_s[True] / used_s[False]))
        batches_s.append(used_s[False])
    # Interruptions make long tails: a tenth at each end does not count.
    cut = len(ratios) // 10
    kept = sorted(ratios)[cut:-cut]
    half = 1.96 * statistics.stdev(kept) / math.sqrt(len(kept))
    return 100 * math.expm1(statistics.mean(kept)), 100 * half, 1e3 * statistics.median(batches_s)


if __name__ == "__main__":
    for each in PAIRS:
        print(each, *(f"{number:.3f}" for number in cost(Path(sys.argv[1]), each)))
