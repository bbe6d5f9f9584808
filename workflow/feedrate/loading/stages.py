"""Time by stage, in the processes of one rank.

The loader's processes and the one that trains mark their stages with `span`. It does nothing until
a `Recorder` is switched on, in a block after the timed window, and then takes about 6 us.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from threading import get_ident
from time import perf_counter, process_time, thread_time
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from feedrate.config.spec import LoadingStage, Stage

STAGES: tuple[Stage, ...] = get_args(Stage)
LOADING: tuple[Stage, ...] = get_args(LoadingStage)  # of the loader
STAMP = "collated_s"  # key of a batch: when it was complete, by the clock that all processes share
NUMBER, SECONDS, CPU_S, SAMPLES = range(4)
"""The fields of a span: its stage's number, and the others."""
SPANS = 2**16  # the latest spans that are kept of each process, in 2 MiB
_NOTHING = nullcontext()
_process: "Process | None" = None  # this process's part in a recorder


class Recorder:
    """Memory that the processes of a rank share: their spans, and a switch."""

    def __init__(self, workers: int) -> None:
        processes = workers + 1  # the first is the one that trains
        shapes = (processes, SPANS, 4), (processes,), (2,)
        self._shared = [torch.zeros(shape, dtype=torch.float64) for shape in shapes]
        for memory in self._shared if workers else []:
            memory.share_memory_()
        self._before = np.zeros(processes, int)
        """Spans of each process before the present recording."""

    def attach(self, number: int) -> "Process":
        """Register this process; 0 is the one that trains."""
        global _process  # spans are far from whoever holds the recorder
        spans, counts, switch = (memory.numpy() for memory in self._shared)
        _process = Process(spans[number], counts[number:], switch, number)
        return _process

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record in this context, from 0."""
        _, counts, switch = self._shared
        self._before = counts.numpy().astype(int)
        switch[:] = torch.tensor([1.0, perf_counter()], dtype=switch.dtype)
        try:
            yield
        finally:
            switch[0] = 0

    def spans(self, steps: int, step_samples: int) -> dict[str, dict[str, Any]]:
        """Each recorded stage over `steps` steps: `seconds` and `cpu_s` (None: unknown) per step,
        the number of spans as `count`, and their 95th percentile as `p95_s`. Workers run ahead of
        the steps, so a stage of theirs counts by its samples: its times are of a step of
        `step_samples`, and its percentile is of one sample. The percentile of another stage is of
        one micro-step. Raises OverflowError for more than `SPANS` spans."""
        log, counts = self._shared[0].numpy(), self._shared[1].numpy().astype(int)
        largest = int((counts - self._before).max())
        if largest > SPANS:
            raise OverflowError(f"{largest} spans in a process; the recorder keeps {SPANS}")
        ranges = zip(log, self._before, counts, strict=True)
        recorded = [spans[np.arange(first, end) % SPANS] for spans, first, end in ranges]
        stages: dict[str, dict[str, Any]] = {}
        for number, stage in enumerate(STAGES):
            by_process = [spans[spans[:, NUMBER] == number] for spans in recorded]
            sums = np.nan_to_num(np.concatenate(by_process)).sum(0)
            if sums[SAMPLES]:
                stage_steps = sums[SAMPLES] / step_samples if stage in LOADING else steps
                seconds = [_sample_seconds(s) for s in by_process if s[:, SAMPLES].any()]
                stages[stage] = {
                    "seconds": float(sums[SECONDS] / stage_steps),
                    "cpu_s": float(sums[CPU_S] / stage_steps) or None,
                    "count": sum(map(len, seconds)),
                    "p95_s": float(np.percentile(np.concatenate(seconds), 95)),
                }
        return stages


def _sample_seconds(spans: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds per sample of spans in order; one without samples continues the one before."""
    first = np.flatnonzero(spans[:, SAMPLES])
    return np.add.reduceat(spans[:, SECONDS], first) / spans[first, SAMPLES]


class Process:
    """One process's spans."""

    cpu_clock: Callable[[], float] = staticmethod(process_time)  # NaN where the time is unknown

    def __init__(self, spans: NDArray[np.float64], counts: Any, switch: Any, number: int) -> None:
        """Shared: `spans` (SPANS, 4), `counts` (from ours on), `switch` (on, its start in s)."""
        self._spans = spans
        # numpy is slow for single numbers.
        self._counts, self.switch = memoryview(counts), memoryview(switch)
        self._places = count(int(counts[0]))  # threads that load beside others count together
        self._thread = get_ident()
        self.number = number

    @contextmanager
    def span(self, stage: Stage, samples: int) -> Iterator[None]:
        """Record this context. CPU time is of the process, or of a thread that loads for itself."""
        cpu_clock = self.cpu_clock if get_ident() == self._thread else thread_time
        start_cpu_s, start_s = cpu_clock(), perf_counter()
        yield
        seconds = perf_counter() - start_s
        # Workers stand still between recordings, also inside of a span, which is then of neither.
        if self.switch[0] and start_s >= self.switch[1]:
            self.add(stage, seconds, samples, cpu_clock() - start_cpu_s)

    def add(self, stage: Stage, seconds: float, samples: int = 1, cpu_s: float = 0.0) -> None:
        """Record a stage that has ended. Without `samples`, it continues the last span."""
        place = next(self._places)
        self._spans[place % SPANS] = STAGES.index(stage), seconds, cpu_s, samples
        self._counts[0] = place + 1  # after the span: other processes read as many as it says


def span(stage: Stage, samples: int = 1) -> AbstractContextManager[None]:
    """A context whose time is recorded as the stage's, done for so many samples."""
    return _process.span(stage, samples) if _process and _process.switch[0] else _NOTHING


def add(stage: Stage, seconds: float, samples: int) -> None:
    """Record a stage that has ended, whose CPU time is unknown."""
    if _process and _process.switch[0]:
        _process.add(stage, seconds, samples)


def stamp() -> dict[str, float]:
    """The record that a batch of a worker with a recorder brings to the process that trains."""
    return {STAMP: perf_counter()} if _process and _process.number else {}
