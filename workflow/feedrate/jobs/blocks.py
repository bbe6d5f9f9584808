"""Blocks of steps, batches from a loader that can stand still, and a trace for ui.perfetto.dev."""

import math
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from multiprocessing import active_children
from pathlib import Path
from statistics import fmean, stdev
from time import perf_counter, sleep
from typing import Any

import psutil
import torch
from torch.profiler import profile, record_function, supported_activities

from feedrate.core.paths import TRACE_NAME
from feedrate.devices.base import Adapter
from feedrate.jobs.events import EventLog, Note
from feedrate.loading.dataset import PairDataset
from feedrate.loading.path import LoadingPath
from feedrate.loading.pixels import Batch

FEWEST_ROUNDS = 3  # rounds of blocks, however long they take
PRECISE = 0.03  # rounds end if all parts relative to live have 95% intervals of less than +-3%
AMPLE = 2.0  # a loader surely so many times as fast as training has no further blocks
SETTLED_S, MOST_SETTLING_S = 0.1, 2.0
"""Workers that do nothing for so long have filled their buffers; the longest wait, s."""
T95 = (4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)  # Student's t, 2 and more degrees


@dataclass
class Part:
    """A kind of block; `step` does this part of the work of an optimizer step."""

    step: Callable[[], None]
    context: Callable[[], AbstractContextManager[Any]] = nullcontext
    warmup: int = 0  # steps before its first block
    step_multiple: int = 1  # blocks have a multiple of this number of steps: batches come in bursts
    untimed_steps: Callable[[], int] = int  # before a block's clock starts; called as it begins
    steps: int = 1  # of a block
    block_s: float = 0.0  # the time that a block takes, roughly
    walls_s: dict[int, float] = field(default_factory=dict)  # of its blocks, by round


def needs_more(walls_s: Mapping[str, Mapping[int, float]], budget_s: float) -> bool:
    """Whether another round is needed to know all parts as precisely as `PRECISE` says. `walls_s`:
    each kind's blocks by round. After `FEWEST_ROUNDS` of each, none spends over `budget_s`."""
    if min(map(len, walls_s.values()), default=FEWEST_ROUNDS) < FEWEST_ROUNDS:
        return True
    live = walls_s.get("live", {})
    spent_s = max((sum(walls.values()) for walls in walls_s.values()), default=budget_s)
    if not live or spent_s * (1 + 1 / len(live)) > budget_s:
        return False
    return any(log_ratio(walls, live)[1] > PRECISE for walls in walls_s.values())


def log_ratio(walls_s: Mapping[int, float], live_s: Mapping[int, float]) -> tuple[float, float]:
    """The mean logarithm of a kind's times over the times of the live blocks in the same rounds,
    and the half-width of its 95% interval, from at least `FEWEST_ROUNDS` rounds."""
    ratios = [math.log(wall_s / live_s[number]) for number, wall_s in walls_s.items()]
    t = T95[min(len(ratios) - FEWEST_ROUNDS, len(T95) - 1)]
    return fmean(ratios), t * stdev(ratios) / math.sqrt(len(ratios))


def has_ample_loader(parts: Mapping[str, Part]) -> bool:
    """Whether the loader is known to be at least `AMPLE` times as fast as training."""
    if not {"live", "loader"} <= parts.keys():
        return False
    live, loader = parts["live"], parts["loader"]
    if min(len(live.walls_s), len(loader.walls_s)) < FEWEST_ROUNDS:
        return False
    ratio, half_width = log_ratio(loader.walls_s, live.walls_s)
    return math.log(loader.steps / live.steps) - ratio - half_width > math.log(AMPLE)


class EndlessBatches:
    """Batch sampler without epochs, which would stop workers; counts the batches `requested`."""

    def __init__(self, rows: int, batch_size: int, seed: int) -> None:
        self._rows, self.batch_size, self.requested = rows, batch_size, 0
        self._generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[list[int]]:
        """Lists of row numbers, without end; an incomplete batch is dropped, as in training."""
        while True:
            order = torch.randperm(self._rows, generator=self._generator).tolist()
            for start in range(0, self._rows - self.batch_size + 1, self.batch_size):
                self.requested += 1
                yield order[start : start + self.batch_size]


class Pipeline:
    """A loader whose worker processes are stopped (SIGSTOP) outside of `running`, so that they take
    no cores from other blocks. Threads cannot be stopped: they fill their buffers after a block."""

    def __init__(self, path: LoadingPath, dataset: PairDataset, order: EndlessBatches) -> None:
        """Start the workers, take the first batch and stop them."""
        earlier_children = set(active_children())
        self._order, self._has_processes, self._received = order, path.by_torch, 0
        self._batches = path.batches(dataset, order)
        next(self)
        self._workers = set(active_children()) - earlier_children
        self._stop()

    def __next__(self) -> Batch:
        """The next batch, on the host unless the device decodes. Only inside of `running`."""
        self._received += 1
        return next(self._batches)

    def steps_ahead(self, step_batches: int) -> int:
        """Steps whose batches are ready or in the making; 0 if workers were stopped."""
        if self._has_processes:
            return 0
        return math.ceil((self._order.requested - self._received) / step_batches)

    def fill(self) -> None:
        """Let the workers load until they are idle: they are as far ahead as they may be."""
        processes = [psutil.Process(worker.pid) for worker in self._workers]

        def cpu_s() -> float:
            return sum(sum(process.cpu_times()[:2]) for process in processes)  # user and system

        with self.running():
            wait_until_steady(cpu_s)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the workers run in this context."""
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._stop()

    def _stop(self) -> None:
        """Stop the workers, or wait until threads have filled their buffers."""
        self._signal(signal.SIGSTOP)
        if not self._has_processes:
            wait_until_steady(lambda: self._order.requested)

    def close(self) -> None:
        """End the workers; those that are stopped would not notice."""
        self._signal(signal.SIGCONT)
        self._batches.close()

    def _signal(self, number: int) -> None:
        for worker in self._workers:
            if worker.is_alive() and worker.pid:
                os.kill(worker.pid, number)


def wait_until_steady(value: Callable[[], float]) -> None:
    """Wait until a value does not change for `SETTLED_S`, at most for `MOST_SETTLING_S`."""
    previous, until_s = -1.0, perf_counter() + MOST_SETTLING_S
    while (present := value()) != previous and perf_counter() < until_s:
        previous = present
        sleep(SETTLED_S)


def write_trace(
    adapter: Adapter, log: EventLog, folder: Path, step: Callable[[], None], steps: int
) -> None:
    """Write rank 0's trace of so many calls of `step` to `folder`, and a note that says what it
    lacks. The other ranks only keep step. A profiler slows the steps: they come last of all."""
    kinds = {"CPU", adapter.profiled_as}
    profiler = profile(activities=[kind for kind in supported_activities() if kind.name in kinds])
    with profiler if log.rank == 0 else nullcontext():
        for number in range(1, steps + 1):
            with record_function(f"ProfilerStep#{number}"):  # PyTorch's own tools look for it
                step()
        adapter.synchronize()
    if log.rank != 0:
        return
    part = folder / f"part.{TRACE_NAME}"  # the profiler packs it, by its suffix
    try:
        profiler.export_chrome_trace(str(part))
        part.rename(folder / TRACE_NAME)
    finally:
        part.unlink(missing_ok=True)
    message, device = TRACE_NAME, adapter.profiled_as
    if device not in {event.device_type.name for event in profiler.events()}:
        message += f"; no events of {device}: torch or the driver does not profile it"
    log.write(Note(rank=0, about="trace", message=message))
