"""Time by stage, in the processes of one rank.

The loader's processes and the one that trains mark their stages with `span`. A span does nothing
until a `Recorder` is attached to the process and switched on, which happens only in a block of
steps of its own, after the timed window. It then takes about 4 us.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from struct import Struct
from threading import get_ident
from time import perf_counter, process_time, thread_time
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from feedrate.config.spec import LoadingStage, Stage

STAGES: tuple[Stage, ...] = get_args(Stage)
LOADING: tuple[Stage, ...] = get_args(LoadingStage)
"""The stages of the loader; the others are of the process that trains."""
STAMP = "collated_s"
"""Key of a batch: when it was complete, by `perf_counter`, which all processes share on Linux."""
_NUMBER = {stage: number for number, stage in enumerate(STAGES)}
NUMBER, SECONDS, CPU_S, SAMPLES = range(4)
"""The fields of a span: its stage's number, and the others."""
_SPAN = Struct("4d")
_SPAN_BYTES, _write = _SPAN.size, _SPAN.pack_into
SPANS = 2**16
"""The latest spans that are kept of each process, in 2 MiB."""
_NOTHING = nullcontext()
_here: "Process | None" = None
"""This process's part in a recorder."""


class Recorder:
    """Memory that the processes of a rank share: their times by stage, and a switch."""

    def __init__(self, workers: int) -> None:
        rows = workers + 1  # the first is of the process that trains
        shapes = (rows, SPANS, _SPAN.size // 8), (rows,), (2,)
        self._shared = [torch.zeros(shape, dtype=torch.float64) for shape in shapes]
        for memory in self._shared if workers else []:
            memory.share_memory_()
        self._before = np.zeros(rows, int)
        """Spans of each process before the present recording."""

    def attach(self, process: int) -> "Process":
        """Register this process as `process`; 0 is the one that trains."""
        global _here  # spans are far from whoever holds the recorder
        log, counts, switch = (memory.numpy() for memory in self._shared)
        _here = Process(log[process], counts[process:], switch, process)
        return _here

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
        the steps, so a stage of theirs counts by the samples it was done for: its times are those
        of a step of `step_samples`. Its percentile is of one sample; that of another stage is of
        one micro-step. Raises OverflowError for more than `SPANS` spans."""
        log, counts = self._shared[0].numpy(), self._shared[1].numpy().astype(int)
        most = int((counts - self._before).max())
        if most > SPANS:
            raise OverflowError(f"{most} spans in a process; the recorder keeps {SPANS}")
        places = zip(log, self._before, counts, strict=True)
        recorded = [spans[np.arange(first, end) % SPANS] for spans, first, end in places]
        stages: dict[str, dict[str, Any]] = {}
        for number, stage in enumerate(STAGES):
            rows = [spans[spans[:, NUMBER] == number] for spans in recorded]
            sums = np.array([spans.sum(0) for spans in rows])
            samples = float(sums[:, SAMPLES].sum())
            if samples:
                steps_done = samples / step_samples if stage in LOADING else steps
                seconds, cpu_s = np.nan_to_num(sums[:, [SECONDS, CPU_S]]).sum(0).tolist()
                spans_s = np.concatenate([_a_sample(r) for r in rows if r[:, SAMPLES].any()])
                stages[stage] = {
                    "seconds": seconds / steps_done,
                    "cpu_s": cpu_s / steps_done or None,
                    "count": len(spans_s),
                    "p95_s": float(np.percentile(spans_s, 95)),
                }
        return stages


def _a_sample(spans: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds per sample of spans in order; one without samples continues the one before."""
    first = np.flatnonzero(spans[:, SAMPLES])
    return np.add.reduceat(spans[:, SECONDS], first) / spans[first, SAMPLES]


class Process:
    """One process's times."""

    clock = staticmethod(perf_counter)
    cpu_clock: Callable[[], float] = staticmethod(process_time)
    """NaN where the time is unknown."""

    def __init__(self, log: Any, counts: Any, switch: Any, number: int) -> None:
        """`log` (SPANS, 4), `counts` (its first is this process's) and `switch` (on, start of the
        recording in s) are shared numpy arrays."""
        # numpy is slow for single numbers.
        self._log = memoryview(log).cast("B")
        self._counts, self.switch = memoryview(counts), memoryview(switch)
        self._places = count(int(counts[0]))  # threads that load beside others count together
        self.thread = get_ident()
        self.number = number

    def add(self, stage: Stage, seconds: float, samples: int = 1, cpu_s: float = 0.0) -> None:
        """Record a stage that has ended. Without `samples`, it continues the last span."""
        place = next(self._places)
        _write(self._log, place % SPANS * _SPAN_BYTES, _NUMBER[stage], seconds, cpu_s, samples)
        self._counts[0] = place + 1  # after the span: other processes read as many as it says


class Span:
    """The time and CPU time of a process in this context. The CPU time is that of the process with
    the threads that compute for it; in another of its threads, which loads beside others, of that
    thread."""

    __slots__ = ("_cpu_clock", "_cpu_s", "_process", "_samples", "_stage", "_start_s")

    def __init__(self, process: Process, stage: Stage, samples: int) -> None:
        self._process, self._stage, self._samples = process, stage, samples
        self._cpu_clock = process.cpu_clock if get_ident() == process.thread else thread_time

    def __enter__(self) -> None:
        self._cpu_s, self._start_s = self._cpu_clock(), self._process.clock()

    def __exit__(self, fault: type[BaseException] | None, *_: object) -> None:
        process, end_s = self._process, self._process.clock()
        # Workers stand still between recordings, also inside of a span, which is then of neither.
        if fault is None and process.switch[0] and self._start_s >= process.switch[1]:
            used_s = self._cpu_clock() - self._cpu_s
            process.add(self._stage, end_s - self._start_s, self._samples, used_s)


def span(stage: Stage, samples: int = 1) -> AbstractContextManager[None]:
    """A context whose time is recorded as the stage's, done for so many samples."""
    return Span(_here, stage, samples) if _here is not None and _here.switch[0] else _NOTHING


def add(stage: Stage, seconds: float, samples: int) -> None:
    """Record a stage that has ended, whose CPU time is unknown."""
    if _here is not None and _here.switch[0]:
        _here.add(stage, seconds, samples)


def stamp() -> dict[str, float]:
    """The record that a batch of a worker with a recorder brings to the process that trains."""
    return {STAMP: perf_counter()} if _here is not None and _here.number else {}
