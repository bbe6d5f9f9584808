"""Time by stage, and virtual speed-ups of a stage, in the processes of one rank.

The loader's processes and the one that trains mark their stages with `span`. A span does nothing
until a `Recorder` is attached to the process and switched on, which happens only in blocks of steps
after the timed window.

A virtual speed-up (Curtsinger and Berger, "Coz", SOSP 2015) shows what a faster stage would gain:
whenever a process spends t in the stage, all others are delayed by share * t. Relative to them, the
stage is then faster by `share`. The delays are subtracted from the wall time in the end.
"""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter, sleep
from typing import Any, get_args

import torch

from feedrate.config.spec import LoadingStage, Stage

STAGES: tuple[Stage, ...] = get_args(Stage)
LOADING: tuple[Stage, ...] = get_args(LoadingStage)
"""The stages of the loader; the others are of the process that trains."""
STAMP = "collated_s"
"""Key of a batch: when it was complete, by `perf_counter`, which all processes share on Linux."""
_NOTHING = nullcontext()
_here: "Process | None" = None
"""This process's part in a recorder."""
_own = threading.local()
"""A worker that is a thread has a part of its own, `process`."""


class Recorder:
    """Memory that the processes of a rank share: their times by stage, the delays that they owe
    each other, and a switch. Workers get it with their dataset."""

    def __init__(self, workers: int) -> None:
        rows = workers + 1  # the first is of the process that trains
        shapes = (rows, len(STAGES), 2), (rows,), (3,)
        self._shared = [torch.zeros(shape, dtype=torch.float64) for shape in shapes]
        for memory in self._shared if workers else []:
            memory.share_memory_()

    def attach(self, process: int, *, thread: bool = False) -> "Process":
        """Make this process, or only this thread, the one of this number, 0 being the one that
        trains."""
        global _here  # spans are far from whoever holds the recorder
        times, caused_s, switch = (memory.numpy() for memory in self._shared)
        attached = Process(times[process], caused_s, switch, process)
        if thread:
            _own.process = attached
        else:
            _here = attached
        return attached

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

    def seconds(self, steps: int, step_samples: int) -> dict[str, float]:
        """Seconds of each recorded stage per step of `step_samples`, over `steps` steps.

        Workers run ahead of the steps, so a stage of theirs counts by the samples it was done for.
        """
        sums = zip(STAGES, self._shared[0].sum(0).tolist(), strict=True)
        return {
            stage: seconds / samples * step_samples if stage in LOADING else seconds / steps
            for stage, (seconds, samples) in sums
            if samples
        }


class Process:
    """One process's times, and the delays that it caused and has had, s.

    It owes the delays that others caused, less those it has had. Its own do not delay it, nor do
    those that fall into a time when it waits for others: they have them before it goes on.
    """

    clock, pause = staticmethod(perf_counter), staticmethod(sleep)

    def __init__(self, times: Any, caused_s: Any, switch: Any, number: int) -> None:
        """`times` (stages, 2), `caused_s` (processes,) and `switch` are shared numpy arrays."""
        self._times, self._caused_s, self._switch = times, caused_s, switch
        self.number = number
        self.had_s = self.delays_s()
        """The delays that it has had: those of others, and its own."""

    @property
    def on(self) -> bool:
        """Whether stages are recorded now."""
        return bool(self._switch[0])

    def delays_s(self) -> float:
        """All delays caused so far."""
        return float(self._caused_s.sum())

    @contextmanager
    def span(self, stage: Stage, samples: int) -> Iterator[None]:
        """Record the time in this context."""
        start_s = self.clock()
        yield
        self.add(stage, self.clock() - start_s, samples)

    def add(self, stage: Stage, seconds: float, samples: int = 1) -> None:
        """Record a stage that has ended, and have the delays that are owed."""
        number = STAGES.index(stage)
        self._times[number] += (seconds, samples)
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


def _part() -> "Process | None":
    """The part of this thread, or of this process."""
    return getattr(_own, "process", _here)


def span(stage: Stage, samples: int = 1) -> AbstractContextManager[None]:
    """A context whose time is recorded as the stage's, done for so many samples."""
    part = _part()
    return part.span(stage, samples) if part is not None and part.on else _NOTHING


def begin_batch() -> None:
    """A worker begins a sample or a batch."""
    part = _part()
    if part is not None and part.on:
        part.wake()


def stamp() -> dict[str, float]:
    """What a complete batch of a worker with a recorder tells the process that trains."""
    part = _part()
    return {STAMP: perf_counter()} if part is not None and part.number else {}
