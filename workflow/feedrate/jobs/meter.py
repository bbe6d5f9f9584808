"""The meter: the time of each optimizer step, and the timed window.

Throughput is samples divided by wall time of the window, never a mean of rates. The window goes
from the end of the last warm-up step to the end of the last step, with data loading and without
pauses for checkpoints.

The device may be steps behind the host. It is synchronised, so that all earlier work and no later
work counts, before the first step and at both ends of the window and of a pause. Nothing else waits
for it: a step's loss is read later, and its waits are measured by marks.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from feedrate.devices.base import Adapter, Counter, Deferred
from feedrate.devices.load import Use, busiest, cpu_by_process, host_load
from feedrate.devices.placement import cpus_text, usable_cpus
from feedrate.jobs import events
from feedrate.jobs.events import EventLog

if TYPE_CHECKING:
    import torch

Span = tuple[Any, Any]  # two marks of the device, in order
ENERGY_EVERY_S = 60.0  # an energy counter is read at least this often, since it may wrap around


class PendingStep(NamedTuple):
    """A step that is not written yet, because the device may not have its numbers."""

    event: events.Step
    numbers: dict[str, Deferred]
    fetches: list[Span]
    waits: list[Span]


class Meter:
    """Measures one rank's training loop. For each step, the loop calls `begin_fetch`, `end_fetch`
    and `add_loss` any number of times and `end_step` once."""

    def __init__(self, adapter: Adapter, log: EventLog, steps: int, warmup_steps: int) -> None:
        """Measure up to step `steps`, without the first `warmup_steps`."""
        self._adapter, self._log = adapter, log
        self._last_step, self._warmup_steps = steps, warmup_steps
        self._pending: deque[PendingStep] = deque()
        self._window_s: float | None = None  # when the window opened; None while it is closed
        self._window_paused_s = 0.0
        self._window_steps: list[events.Step] = []
        self._processes: dict[int, Use] = {}  # of the host and not of the job, as the window opened
        self.window: events.Window | None = None  # once it has closed
        # The mark at which the loop asked for batches; None while it does not wait for any.
        self._fetch_start: Any = None
        self._clear_step()

    def _clear_step(self) -> None:
        self._paused_s = 0.0
        self._starts_epoch = False
        self._samples = 0
        self._loss: torch.Tensor | None = None
        self._fetches: list[Span] = []
        self._waits: list[Span] = []  # the parts of the fetches in which the host had no batch

    def begin(self) -> None:
        """The loop begins."""
        self._energy = WindowEnergy(self._adapter.energy_counter())
        self._adapter.synchronize()  # earlier work must not count as the first step's
        self._adapter.reset_peak()
        self._origin_s = self._step_start_s = perf_counter()

    def begin_fetch(self) -> None:
        """The loop asks for batches."""
        if self._fetch_start is None:
            self._fetch_start = self._adapter.mark()

    def waits(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The batches of the host's loader: the time to make them is data wait, the rest of a fetch
        is copies to the device. With another loader, all of it is data wait."""
        start = self._fetch_start or self._adapter.mark()  # starting workers is part of the wait
        for batch in loader:
            self._waits.append((start, self._adapter.mark()))
            yield batch
            start = self._adapter.mark()
        self._waits.append((start, self._adapter.mark()))

    def end_fetch(self, batches: Iterable[Mapping[str, Any]]) -> None:
        """Batches came: count their samples by the tensors' own first dimension."""
        self._fetches.append((self._fetch_start, self._adapter.mark()))
        self._fetch_start = None
        for batch in batches:
            self._samples += next(len(t) for t in batch.values() if getattr(t, "ndim", 0))

    def add_loss(self, loss: "torch.Tensor") -> None:
        """Add a micro-step's share of the step's loss (a scalar on the device)."""
        self._loss = loss if self._loss is None else self._loss + loss

    def end_step(self, step: int, scale: "torch.Tensor | None" = None) -> None:
        """Optimizer step `step` (counted from 1) has ended; in fp16, with this loss scale."""
        is_first, is_last = step == self._warmup_steps, step == self._last_step
        if is_first or is_last:
            self._adapter.synchronize()  # only work submitted inside the window counts
        if is_first:
            self._log.write(machine_now(self._adapter, self._log.rank))
            self._processes = cpu_by_process(os.getppid())
            self._energy.start(perf_counter())
        now_s = perf_counter()
        self._add_step(step, now_s, scale)
        self.write_steps(wait=is_first or is_last)
        if self._window_s is not None:
            self._energy.end_step(now_s)
            if is_last:
                self._close_window(now_s - self._window_s - self._window_paused_s)
        if is_first:
            self._window_s, self._window_paused_s = now_s, 0.0
        self._step_start_s = now_s
        self._clear_step()

    def _close_window(self, wall_s: float) -> None:
        self._energy.stop()
        paused_s, energy_j = self._window_paused_s, self._energy.total_j
        self.window = window_of(self._window_steps, wall_s, paused_s, self._adapter, energy_j)
        self._log.write(self.window)
        # After the window, whose event ends it for those who time it from outside.
        self._log.write(machine_now(self._adapter, self._log.rank, self._processes))
        self._window_s = None

    def end_epoch(self) -> None:
        """The loop waits for its loader, which may stop its workers here and start them again."""
        self._fetch_start, self._starts_epoch = self._adapter.mark(), True

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the time in this block out of the step and the window: it is not training."""
        self._adapter.synchronize()  # earlier work belongs to the steps
        start_s = perf_counter()
        if self._window_s is not None:
            self._energy.stop()
        try:
            yield
        finally:
            self._adapter.synchronize()  # work submitted inside belongs to the pause
            if self._window_s is not None:
                self._energy.start(perf_counter())
            pause_s = perf_counter() - start_s
            self._paused_s += pause_s
            self._window_paused_s += pause_s
            if self._fetch_start is not None:
                self._fetch_start = self._adapter.mark()

    def _add_step(self, step: int, now_s: float, scale: "torch.Tensor | None") -> None:
        memory = self._adapter.memory()
        event = events.Step(
            rank=self._log.rank,
            step=step,
            starts_epoch=self._starts_epoch,
            t_s=now_s - self._origin_s,
            step_s=now_s - self._step_start_s - self._paused_s,
            samples=self._samples,
            memory_gib=memory.now_gib,
            peak_memory_gib=memory.peak_gib,
            warmup=step <= self._warmup_steps,
        )
        # Reading numbers now would make the host wait for the device at every step.
        tensors = {"loss": self._loss, "loss_scale": scale}
        numbers = {name: self._adapter.defer(t) for name, t in tensors.items() if t is not None}
        self._pending.append(PendingStep(event, numbers, self._fetches, self._waits))

    def write_steps(self, *, wait: bool) -> None:
        """Write the steps whose numbers can be read, or all, if the host may `wait` for them."""
        while self._pending:
            step = self._pending[0]
            if not (wait or all(number.ready() for number in step.numbers.values())):
                return
            self._pending.popleft()
            fetch_s = self._seconds(step.fetches)
            wait_s = self._seconds(step.waits) if step.waits else fetch_s
            event = msgspec.structs.replace(
                step.event,
                data_wait_s=wait_s,
                copy_wait_s=fetch_s - wait_s,
                **{name: number.value() for name, number in step.numbers.items()},
            )
            self._log.write(event)
            if self._window_s is not None:
                self._window_steps.append(event)

    def _seconds(self, spans: list[Span]) -> float:
        return sum(self._adapter.seconds(start, end) for start, end in spans)


class WindowEnergy:
    """The energy of a device between starts and stops; `total_j` is None if a reading failed."""

    def __init__(self, counter: Counter) -> None:
        self._counter, self._read_s = counter, 0.0
        self._start_j: float | None = None
        self.total_j: float | None = 0.0

    def start(self, now_s: float) -> None:
        """The window opens, or continues after a pause."""
        self._start_j, self._read_s = self._counter(), now_s

    def stop(self) -> None:
        """The window closes, or pauses."""
        end_j = self._counter()
        if self.total_j is None or self._start_j is None or end_j is None:
            self.total_j = None
        else:
            self.total_j += end_j - self._start_j

    def end_step(self, now_s: float) -> None:
        """Read the counter if that is due."""
        if now_s - self._read_s > ENERGY_EVERY_S:
            self._counter()
            self._read_s = now_s


def machine_now(
    adapter: Adapter, rank: int, earlier: Mapping[int, Use] | None = None
) -> events.Machine:
    """The `machine` event, with the programs that are busiest since `cpu_by_process` gave
    `earlier`. Reading it takes milliseconds, which the window must not contain."""
    condition, load, cores = adapter.condition(), host_load(), cpus_text(usable_cpus())
    uses = busiest(earlier, cpu_by_process(os.getppid())) if earlier is not None else []
    programs = [events.Program(*use) for use in uses]
    return events.Machine(rank=rank, device=condition, host=load, programs=programs, cores=cores)


def window_of(
    steps: Sequence[events.Step],
    wall_s: float,
    paused_s: float,
    adapter: Adapter,
    energy_j: float | None = None,
) -> events.Window:
    """The `window` event of these steps, with the memory of the last one."""
    last = steps[-1]
    copies = [step.copy_wait_s for step in steps if step.copy_wait_s is not None]
    return events.Window(
        rank=last.rank,
        first_step=steps[0].step,
        last_step=last.step,
        steps=len(steps),
        samples=sum(step.samples or 0 for step in steps),
        wall_s=wall_s,
        data_wait_s=sum(step.data_wait_s for step in steps),
        copy_wait_s=sum(copies) if copies else None,
        paused_s=paused_s,
        memory_gib=last.memory_gib,
        peak_memory_gib=last.peak_memory_gib,
        reserved_memory_gib=adapter.memory().reserved_gib,
        allocator_retries=adapter.allocator_retries(),
        energy_j=energy_j,
    )
