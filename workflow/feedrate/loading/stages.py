"""Time by stage, and virtual speed-ups of a stage, in the processes of one rank.

The loader's processes and the one that trains mark their stages with `span`. A span does nothing
until a `Recorder` is attached to the process and switched on, which happens only in blocks of steps
after the timed window. The memory of a recorder has a fixed size: a stage's spans are counted by
their length, in bins that are at most 6.25% wide, so a percentile is within 3.2% of the exact one.

A virtual speed-up (Curtsinger and Berger, "Coz", SOSP 2015) shows what a faster stage would gain:
whenever a process spends t in the stage, all others are delayed by share * t. Relative to them, the
stage is then faster by `share`. The delays are subtracted from the wall time in the end.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import frexp
from threading import Lock, get_ident
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
SECONDS, CPU_S, SAMPLES, LONGEST, LAST, BINNED = range(6)
"""What a process knows of a stage: sums of seconds, CPU seconds and samples; the longest span, and
the last one, which may go on; from `BINNED` on, the number of spans in each bin."""
BINS_OF_OCTAVE, OCTAVES = 16, range(-20, 11)
"""Bins between two powers of two, and the powers that end them: from 2^-21 s to 2^10 s."""
WIDTH = BINNED + BINS_OF_OCTAVE * len(OCTAVES)
_NOTHING = nullcontext()
_here: "Process | None" = None
"""This process's part in a recorder."""


class Recorder:
    """Memory that the processes of a rank share: their times by stage, the delays that they owe
    each other, and a switch. Workers get it with their dataset."""

    def __init__(self, workers: int) -> None:
        rows = workers + 1  # the first is of the process that trains
        shapes = (rows, len(STAGES), WIDTH), (rows,), (3,)
        self._shared = [torch.zeros(shape, dtype=torch.float64) for shape in shapes]
        for memory in self._shared if workers else []:
            memory.share_memory_()

    def attach(self, process: int) -> "Process":
        """Make this process the one of this number, 0 being the one that trains."""
        global _here  # spans are far from whoever holds the recorder
        times, caused_s, switch = (memory.numpy() for memory in self._shared)
        _here = Process(times[process], caused_s, switch, process)
        return _here

    @contextmanager
    def recording(self, stage: Stage | None = None, share: float = 0.0) -> Iterator[None]:
        """Record in this context, from 0; with `stage` also delay the others by `share` of it."""
        times, _, switch = self._shared
        times.zero_()
        switch[:] = torch.tensor([1, -1 if stage is None else STAGES.index(stage), share])
        try:
            yield
        finally:
            switch[0] = 0

    def spans(self, steps: int, step_samples: int) -> dict[str, dict[str, Any]]:
        """Each recorded stage over `steps` steps, as the keys of `events.Spans`.

        Workers run ahead of the steps, so a stage of theirs counts by the samples it was done for:
        its times are those of a step of `step_samples`. Its percentiles are of one sample; those
        of another stage are of one micro-step.
        """
        found: dict[str, dict[str, Any]] = {}
        for stage, told in zip(STAGES, self._shared[0].numpy().swapaxes(0, 1), strict=True):
            samples = told[:, SAMPLES].sum()
            if samples:
                steps_done = samples / step_samples if stage in LOADING else steps
                a_step = told[:, [SECONDS, CPU_S]] / steps_done
                seconds, cpu_s = a_step.sum(0).tolist()
                workers = {str(p): one for p, one in enumerate(a_step.tolist()) if any(one)}
                sums = {"seconds": seconds, "cpu_s": cpu_s or None, "workers": workers}
                found[stage] = sums | _percentiles(told)
        return found


def _percentiles(told: NDArray[np.float64]) -> dict[str, float]:
    """Number of spans, percentiles and maximum, from the rows of all processes for a stage."""
    bins, last_s = told[:, BINNED:].sum(0), told[:, LAST]
    for seconds in last_s[last_s > 0]:
        bins[_bin(seconds)] += 1
    longest_s = max(told[:, LONGEST].max(), last_s.max())
    ends = bins.cumsum()
    places = np.searchsorted(ends, np.array([0.5, 0.95, 0.99]) * ends[-1])
    octave, part = np.divmod(places, BINS_OF_OCTAVE)
    middle_s = np.ldexp(0.5 + (part + 0.5) / (2 * BINS_OF_OCTAVE), octave + OCTAVES.start)
    p50_s, p95_s, p99_s = np.minimum(middle_s, longest_s).tolist()
    names = "count", "p50_s", "p95_s", "p99_s", "max_s"
    return dict(zip(names, (int(ends[-1]), p50_s, p95_s, p99_s, float(longest_s)), strict=True))


def _bin(seconds: float) -> int:
    part, octave = frexp(seconds)  # part is in 0.5 to 1
    if octave < OCTAVES.start:
        return 0
    octave = min(octave, OCTAVES.stop - 1) - OCTAVES.start
    return octave * BINS_OF_OCTAVE + int((2 * part - 1) * BINS_OF_OCTAVE)


class Process:
    """One process's times, and the delays that it caused and has had, s.

    It owes the delays that others caused, less those it has had. Its own do not delay it, nor do
    those that fall into a time when it waits for others: they have them before it goes on.
    """

    clock, pause = staticmethod(perf_counter), staticmethod(sleep)

    def __init__(self, times: Any, caused_s: Any, switch: Any, number: int) -> None:
        """`times` (stages, WIDTH), `caused_s` (processes,) and `switch` are shared numpy arrays."""
        # numpy is slow for single numbers
        self._times, self._switch = (memoryview(a).cast("B").cast("d") for a in (times, switch))
        self._caused_s = caused_s
        self._thread, self._lock = get_ident(), Lock()
        self.number = number
        self.had_s = self.delays_s()
        """The delays that it has had: those of others, and its own."""

    @property
    def on(self) -> bool:
        """Whether stages are recorded now."""
        return bool(self._switch[0])

    def cpu_s(self) -> float:
        """CPU time of this process with the threads that compute for it; in another of its threads,
        which loads beside others, of that thread."""
        return process_time() if get_ident() == self._thread else thread_time()

    def delays_s(self) -> float:
        """All delays caused so far."""
        return float(self._caused_s.sum())

    def span(self, stage: Stage, samples: int) -> AbstractContextManager[None]:
        """Record the time in this context."""
        return _Span(self, stage, samples)

    def add(self, stage: Stage, seconds: float, samples: int = 1, cpu_s: float = 0.0) -> None:
        """Record a stage that has ended, and have the delays that are owed.

        Without `samples` it goes on with what the last span of the stage began.
        """
        number = _NUMBER[stage]
        times, at = self._times, number * WIDTH
        with self._lock:
            times[at + SECONDS] += seconds
            times[at + CPU_S] += cpu_s
            if samples:
                times[at + SAMPLES] += samples
                last_s = times[at + LAST]
                if last_s:
                    times[at + BINNED + _bin(last_s)] += 1
                    times[at + LONGEST] = max(times[at + LONGEST], last_s)
                times[at + LAST] = seconds / samples
            else:
                times[at + LAST] += seconds
        if self._switch[1] < 0:
            return
        if number == self._switch[1]:
            delay_s = self._switch[2] * seconds
            self._caused_s[self.number] += delay_s
            self.had_s += delay_s
        self.settle()

    def settle(self) -> None:
        """Have the delays that are owed."""
        owed_s = self.delays_s() - self.had_s
        if owed_s > 0:
            start_s = self.clock()
            self.pause(owed_s)
            self.had_s += self.clock() - start_s  # a pause that was too long counts for the next

    def wake(self) -> None:
        """This process has waited for others, which have had the delays of that time."""
        self.had_s = max(self.had_s, self.delays_s())


class _Span(AbstractContextManager[None]):
    """The time and CPU time of a process in this context."""

    __slots__ = ("_began", "_process", "_samples", "_stage")

    def __init__(self, process: Process, stage: Stage, samples: int) -> None:
        self._process, self._stage, self._samples = process, stage, samples

    def __enter__(self) -> None:
        self._began = self._process.cpu_s(), self._process.clock()

    def __exit__(self, fault: type[BaseException] | None, *_: object) -> None:
        if fault is None:
            process, (cpu_s, start_s) = self._process, self._began
            seconds = process.clock() - start_s
            process.add(self._stage, seconds, self._samples, process.cpu_s() - cpu_s)


def span(stage: Stage, samples: int = 1) -> AbstractContextManager[None]:
    """A context whose time is recorded as the stage's, done for so many samples."""
    return _here.span(stage, samples) if _here is not None and _here.on else _NOTHING


def begin_batch() -> None:
    """A worker begins a sample or a batch."""
    if _here is not None and _here.on:
        _here.wake()


def stamp() -> dict[str, float]:
    """What a complete batch of a worker with a recorder tells the process that trains."""
    return {STAMP: perf_counter()} if _here is not None and _here.number else {}
