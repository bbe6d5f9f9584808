"""The cost of the meter: its calls as a share of a step of the default study."""

import statistics
import tempfile
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from time import perf_counter

from benchmarks.default_study import default_spec, prepare_default, run_worker
from benchmarks.figure import Figure

STEPS = 2_000
ROUNDS = 5
GOAL = 0.5


def measure() -> Iterator[Figure]:
    """Time of all calls of one step (events written to disk) over a step's, in the same run.

    The difference between jobs with and without the meter is smaller than the noise of whole jobs,
    so the calls themselves are timed.
    """
    with tempfile.TemporaryDirectory() as name:
        steps = run_worker(default_spec(), prepare_default(Path(name)), Path(name) / "job")
        step_s = statistics.median(step["step_s"] for step in steps)
        call_s = statistics.median(calls_s(Path(name)) for _ in range(ROUNDS))
    note = f"{call_s * 1e6:.0f} us of {step_s * 1e3:.0f} ms"
    yield Figure("meter on against off", 100 * call_s / step_s, GOAL, "% of step", note)


def calls_s(folder: Path) -> float:
    """Seconds that the meter's own calls take for one step."""
    import torch

    from feedrate.devices.base import adapter
    from feedrate.jobs.events import EventLog
    from feedrate.jobs.meter import Meter

    meter = Meter(adapter("cpu"), EventLog(folder, 0), steps=STEPS, warmup_steps=10)
    batch, loss = {"pixel_values": torch.zeros(8, 3)}, torch.tensor(1.0)
    meter.begin()
    batches = meter.waits(repeat(batch))
    start_s = perf_counter()
    for step in range(1, STEPS + 1):
        meter.begin_fetch()
        meter.end_fetch([next(batches)])
        meter.add_loss(loss)
        meter.end_step(step)
    return (perf_counter() - start_s) / STEPS
