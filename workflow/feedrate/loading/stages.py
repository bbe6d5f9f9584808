"""Time by stage, and virtual speed-ups of a stage, in the processes of one rank.

The loader's processes and the one that trains mark their stages with `span`. A span does nothing
until a `Recorder` is attached to the process and switched on, which happens only in blocks of steps
after the timed window. It then takes about 2 us, and more beside a decoder, which fills the
processor's caches, so only one sample in `EVERY` has its stages recorded.

A virtual speed-up (docs/measurement-predictions.md) shows what a faster stage would gain: whenever
a process spends t in the stage, all others are delayed by share * t.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count, cycle
from struct import Struct
from threading import get_ident
from time import perf_counter, process_time, sleep, thread_time
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
EVERY = 4
"""One sample in so many is recorded; with a virtual speed-up each is, because each has delays."""
NEAR_S = 20e-6
"""A span that begins so soon after another takes over its reading of the CPU time."""
_NOTHING = nullcontext()
_here: "Process | None" = None
"""This process's part in a recorder."""
_own = threading.local()
"""Of a worker thread: `process`, its part; `left_out`, true while its sample is not recorded."""


class Recorder:
    """Memory that the processes of a rank share: their times by stage, the delays that they owe
    each other, and a switch. Workers get it with their dataset."""

    def __init__(self, workers: int) -> None:
        rows = workers + 1  # the first is of the process that trains
        shapes = (rows, SPANS, _SPAN.size // 8), (rows,), (rows,), (4,)
        self._shared = [torch.zeros(shape, dtype=torch.float64) for shape in shapes]
        for memory in self._shared if workers else []:
            memory.share_memory_()
        self._before = np.zeros(rows, int)
        """Spans of each process before the present recording."""

    def attach(self, process: int, *, thread: bool = False) -> "Process":
        """Register this process, or only this thread, under the number `process`; 0 is the process
        that trains."""
        global _here  # spans are far from whoever holds the recorder
        log, counts, caused_s, switch = (memory.numpy() for memory in self._shared)
        attached = Process(log[process], counts[process:], caused_s, switch, process)
        if thread:
            attached.cpu_clock = thread_time
            _own.process = attached
        else:
            _here = attached
        return attached

    @contextmanager
    def recording(self, stage: Stage | None = None, share: float = 0.0) -> Iterator[None]:
        """Record in this context, from 0; with `stage` also delay the others by `share` of it."""
        _, counts, _, switch = self._shared
        self._before = counts.numpy().astype(int)
        number = -1 if stage is None else STAGES.index(stage)
        switch[:] = torch.tensor([1.0, number, share, perf_counter()], dtype=switch.dtype)
        try:
            yield
        finally:
            switch[0] = 0

    def spans(self, steps: int, step_samples: int) -> dict[str, dict[str, Any]]:
        """Each recorded stage over `steps` steps: `seconds` and `cpu_s` per step (None: not
        told), the same and `p95_s` by process as `workers`, `count`, `p50_s`, `p95_s`, `p99_s` and
        `max_s`.

        Workers run ahead of the steps, so a stage of theirs counts by the samples it was done for:
        its times are those of a step of `step_samples`. Its percentiles are of one sample; those
        of another stage are of one micro-step. Raises OverflowError for more than `SPANS` spans.
        """
        log, counts = self._shared[0].numpy(), self._shared[1].numpy().astype(int)
        if (most := int((counts - self._before).max())) > SPANS:
            raise OverflowError(f"{most} spans in a process; the recorder keeps {SPANS}")
        places = zip(log, self._before, counts, strict=True)
        told = [mine[np.arange(first, end) % SPANS] for mine, first, end in places]
        found: dict[str, dict[str, Any]] = {}
        for number, stage in enumerate(STAGES):
            rows = [one[one[:, NUMBER] == number] for one in told]
            sums = np.array([one.sum(0) for one in rows])
            samples = sums[:, SAMPLES].sum()
            if samples:
                steps_done = samples / step_samples if stage in LOADING else steps
                a_step = np.nan_to_num(sums[:, [SECONDS, CPU_S]]) / steps_done
                seconds, cpu_s = a_step.sum(0).tolist()
                spans_s = {n: _a_sample(one) for n, one in enumerate(rows) if one[:, SAMPLES].any()}
                p95_s = {n: float(np.percentile(one, 95)) for n, one in spans_s.items()}
                workers = {str(n): [*a_step[n].tolist(), p95_s[n]] for n in spans_s}
                totals = {"seconds": seconds, "cpu_s": cpu_s or None, "workers": workers}
                every_s = np.concatenate([*spans_s.values()])
                names, ranks = ("p50_s", "p95_s", "p99_s", "max_s"), (50, 95, 99, 100)
                tails = zip(names, np.percentile(every_s, ranks).tolist(), strict=True)
                found[stage] = totals | {"count": len(every_s), **dict(tails)}
        return found


def _a_sample(spans: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds per sample of a process's spans, in order. A span without samples continues the span
    before it."""
    first = np.flatnonzero(spans[:, SAMPLES])
    return np.add.reduceat(spans[:, SECONDS], first) / spans[first, SAMPLES]


class Process:
    """One process's times, and the delays that it caused and has had, s.

    It owes the delays that others caused, less those it has had. It is delayed neither by its own,
    nor by those that begin while it waits for others: the others have had these before it goes on.
    """

    clock, pause = staticmethod(perf_counter), staticmethod(sleep)
    cpu_clock: Callable[[], float] = staticmethod(process_time)
    """NaN where the time is unknown."""

    def __init__(self, log: Any, counts: Any, caused_s: Any, switch: Any, number: int) -> None:
        """`log` (SPANS, 4), `counts` (its first is this process's), `caused_s` (processes,) and
        `switch` (on, number of the faster stage or -1, share, start of the recording in s) are
        shared numpy arrays."""
        # numpy is slow for single numbers.
        self._log = memoryview(log).cast("B")
        self._counts, self.switch = memoryview(counts), memoryview(switch)
        self._caused_s = caused_s
        self._places = count(int(counts[0]))  # threads that load beside others count together
        self.turns = cycle(range(EVERY))
        self.thread, self.read = get_ident(), (0.0, -1.0)
        """The thread that attached itself; its last reading of the CPU time, and when."""
        self.number = number
        self.had_s = float(caused_s.sum())
        """The delays that it has had: those of others, and its own."""

    def add(self, stage: Stage, seconds: float, samples: int = 1, cpu_s: float = 0.0) -> None:
        """Record a stage that has ended, and sleep for the owed delays. Without `samples`, it
        continues the last span."""
        number, place = _NUMBER[stage], next(self._places)
        _write(self._log, place % SPANS * _SPAN_BYTES, number, seconds, cpu_s, samples)
        self._counts[0] = place + 1
        if self.switch[1] < 0:
            return
        if number == self.switch[1]:
            delay_s = self.switch[2] * seconds
            self._caused_s[self.number] += delay_s
            self.had_s += delay_s
        self.settle()

    def settle(self) -> None:
        """Sleep for the delays that are owed."""
        owed_s = float(self._caused_s.sum()) - self.had_s
        if owed_s > 0:
            start_s = self.clock()
            self.pause(owed_s)
            self.had_s += self.clock() - start_s  # a pause that was too long counts for the next

    def wake(self) -> None:
        """This process has waited for others, which have had the delays of that time."""
        self.had_s = max(self.had_s, float(self._caused_s.sum()))


class Span:
    """The time and CPU time of a process in this context. (It is written for speed.)

    The CPU time is that of the process with the threads that compute for it; in another of its
    threads, which loads beside others, of that thread.
    """

    __slots__ = ("_cpu_s", "_process", "_samples", "_stage", "_start_s")

    def __init__(self, process: Process, stage: Stage, samples: int) -> None:
        self._process, self._stage, self._samples = process, stage, samples

    def __enter__(self) -> None:
        process = self._process
        if get_ident() != process.thread:
            self._cpu_s, self._start_s = thread_time(), process.clock()
            return
        self._start_s = process.clock()
        cpu_s, read_s = process.read
        self._cpu_s = cpu_s + self._start_s - read_s  # as if it had computed since then
        if self._start_s - read_s > NEAR_S:
            self._cpu_s, self._start_s = process.cpu_clock(), process.clock()

    def __exit__(self, fault: type[BaseException] | None, *_: object) -> None:
        process, end_s = self._process, self._process.clock()
        # Workers stand still between recordings, also inside of a span, which is then of neither.
        if fault is not None or not process.switch[0] or self._start_s < process.switch[3]:
            return
        if get_ident() == process.thread:
            cpu_s = process.cpu_clock()
            process.read = cpu_s, end_s
        else:
            cpu_s = thread_time()
        process.add(self._stage, end_s - self._start_s, self._samples, cpu_s - self._cpu_s)


def _part() -> "Process | None":
    return getattr(_own, "process", _here)


def span(stage: Stage, samples: int = 1) -> AbstractContextManager[None]:
    """A context whose time is recorded as the stage's, done for so many samples."""
    part = _part()
    if part is None or not part.switch[0] or getattr(_own, "left_out", False):
        return _NOTHING
    return Span(part, stage, samples)


@contextmanager
def sample() -> Iterator[None]:
    """A context for the stages of one sample, which are recorded for one in `EVERY`."""
    part = _part()
    if part is not None and part.switch[0] and part.switch[1] < 0:
        _own.left_out = next(part.turns) != 0
    try:
        yield
    finally:
        _own.left_out = False


def add(stage: Stage, seconds: float, samples: int) -> None:
    """Record a stage that has ended, whose CPU time is unknown."""
    part = _part()
    if part is not None and part.switch[0]:
        part.add(stage, seconds, samples)


def begin_batch() -> None:
    """A worker begins a sample or a batch."""
    part = _part()
    if part is not None and part.switch[0]:
        part.wake()


def stamp() -> dict[str, float]:
    """The record that a batch of a worker with a recorder brings to the process that trains."""
    part = _part()
    return {STAMP: perf_counter()} if part is not None and part.number else {}
