"""The meter: what each optimizer step took, and the timed window.

Throughput is samples over wall time of the window, never a mean of rates. The window goes from
the synchronised end of the last warm-up step to the synchronised end of the last step, with data
loading inside; checkpoints and evaluations within it are taken out and recorded as pauses.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from feedrate.devices.base import Adapter, Counter, Deferred
from feedrate.jobs.events import EventLog

# The energy of a timed window, without its pauses.

LOOK_S = 60.0
"""A counter is read at least this often, since it may start anew."""


class WindowEnergy:
    """What a device takes while the window is open; the calls cost a reading each."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._start_j: float | None = None
        self._looked_s = 0.0
        self._total_j: float | None = 0.0

    def start(self, now_s: float) -> None:
        """The window opens, or goes on after a pause."""
        self._start_j, self._looked_s = self._counter(), now_s

    def stop(self) -> None:
        """The window closes, or pauses."""
        end_j = self._counter()
        if self._total_j is None or self._start_j is None or end_j is None:
            self._total_j = None
        else:
            self._total_j += end_j - self._start_j

    def look(self, now_s: float) -> None:
        """A step has ended."""
        if now_s - self._looked_s > LOOK_S:
            self._counter()
            self._looked_s = now_s

    @property
    def total_j(self) -> float | None:
        """Joules between starts and stops; None where a reading failed."""
        return self._total_j


if TYPE_CHECKING:
    import torch


@dataclass
class _Window:
    """The timed window while it is open."""

    first_step: int
    start_s: float
    samples: int = 0
    data_wait_s: float = 0.0
    paused_s: float = 0.0


class Meter:
    """Measures one rank's training loop and writes `step` and `window` events.

    The loop calls, for each step, `begin_fetch`, `end_fetch` and `add_loss` any number of times and
    `end_step` once. A step's event is written once its loss can be read without waiting.
    """

    def __init__(self, adapter: Adapter, log: EventLog, steps: int, warmup_steps: int) -> None:
        """Measure up to step `steps`; the first `warmup_steps` of this process are left out."""
        self._adapter = adapter
        self._log = log
        self._last_step = steps
        self._warmup_steps = warmup_steps
        self._pending: deque[tuple[dict[str, Any], Deferred | None]] = deque()
        self._window: _Window | None = None
        self._fetch_start_s: float | None = None
        self._loss: torch.Tensor | None = None

    def begin(self, steps_done: int = 0) -> None:
        """The loop begins, `steps_done` of its steps having been done by an earlier process."""
        self._opens_after = steps_done + self._warmup_steps
        self._energy = WindowEnergy(self._adapter.energy_counter())
        self._adapter.synchronize()
        self._adapter.reset_peak()
        self._origin_s = self._step_start_s = perf_counter()
        self._clear_step()

    def end_epoch(self) -> None:
        """The rows are used up: until batches come again, the loop waits for its loader.

        This is where workers that do not outlive an epoch are stopped and started anew.
        """
        self._fetch_start_s = perf_counter()

    def begin_fetch(self) -> None:
        """The loop asks for batches."""
        if self._fetch_start_s is None:
            self._fetch_start_s = perf_counter()

    def end_fetch(self, batches: Iterable[Mapping[str, Any]]) -> None:
        """Batches came: count their samples by the tensors' own first dimension."""
        if self._fetch_start_s is not None:
            self._data_wait_s += perf_counter() - self._fetch_start_s
        self._fetch_start_s = None
        self._samples += sum(batch_length(batch) for batch in batches)

    def add_loss(self, loss: "torch.Tensor") -> None:
        """A micro-step's share of the step's loss (a scalar on the device)."""
        self._loss = loss if self._loss is None else self._loss + loss

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time in this block is no training: it is taken out of step and window."""
        self._adapter.synchronize()
        start_s = perf_counter()
        if self._window is not None:
            self._energy.stop()
        try:
            yield
        finally:
            self._adapter.synchronize()
            if self._window is not None:
                self._energy.start(perf_counter())
            took_s = perf_counter() - start_s
            self._paused_s += took_s
            if self._fetch_start_s is not None:
                self._fetch_start_s += took_s
            if self._window is not None:
                self._window.paused_s += took_s

    def end_step(self, step: int) -> None:
        """Optimizer step `step` (counted from 1) has ended."""
        opens, closes = step == self._opens_after, step == self._last_step
        if opens or closes:
            self._adapter.synchronize()
        if opens:
            self._energy.start(perf_counter())
        now_s = perf_counter()
        now_gib, peak_gib = self._adapter.memory()
        event = {
            "step": step,
            "t_s": now_s - self._origin_s,
            "step_s": now_s - self._step_start_s - self._paused_s,
            "data_wait_s": self._data_wait_s,
            "samples": self._samples,
            "memory_gib": now_gib,
            "peak_memory_gib": peak_gib,
            "warmup": step <= self._opens_after,
        }
        loss = None if self._loss is None else self._adapter.defer(self._loss)
        self._pending.append((event, loss))
        self._write_steps(wait=opens or closes)
        if self._window is not None:
            self._window.samples += self._samples
            self._window.data_wait_s += self._data_wait_s
            self._energy.look(now_s)
            if closes:
                self._energy.stop()
                self._close(self._window, step, now_s, now_gib, peak_gib)
        if opens:
            self._window = _Window(first_step=step + 1, start_s=now_s)
        self._step_start_s = now_s
        self._clear_step()

    def _clear_step(self) -> None:
        self._data_wait_s = self._paused_s = 0.0
        self._samples = 0
        self._loss = None

    def _write_steps(self, *, wait: bool) -> None:
        while self._pending:
            event, loss = self._pending[0]
            if not (wait or loss is None or loss.ready()):
                return
            self._pending.popleft()
            self._log.write("step", **event, loss=None if loss is None else loss.value())

    def _close(
        self,
        window: _Window,
        step: int,
        now_s: float,
        memory_gib: float | None,
        peak_memory_gib: float | None,
    ) -> None:
        self._window = None
        self._log.write(
            "window",
            first_step=window.first_step,
            last_step=step,
            steps=step - window.first_step + 1,
            samples=window.samples,
            wall_s=now_s - window.start_s - window.paused_s,
            data_wait_s=window.data_wait_s,
            paused_s=window.paused_s,
            memory_gib=memory_gib,
            peak_memory_gib=peak_memory_gib,
            allocator_retries=self._adapter.allocator_retries(),
            energy_j=self._energy.total_j,
        )


def batch_length(batch: Mapping[str, Any]) -> int:
    """Samples in a batch: the first dimension of its first tensor."""
    return next(len(value) for value in batch.values() if getattr(value, "ndim", 0))
