"""Emulated accelerators: processes that take batches from real loaders at a pace.

Each has a loader of its own, as a rank has in training. Only the computing is replaced by waiting.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from multiprocessing import get_context
from multiprocessing.connection import Connection
from statistics import fmean
from time import perf_counter, sleep
from typing import Annotated, Any, NamedTuple

from feedrate.config.values import Strict, about
from feedrate.core.errors import ExpectedError
from feedrate.core.processes import die_with_parent
from feedrate.devices.load import host_load
from feedrate.jobs.worker import classify

BUSY = 0.9
"""The share of time for which a fed accelerator is busy (MLPerf Storage asks the same)."""
WARMUP_S, WINDOW_S, WINDOW_STEPS = 2.0, 8.0, 10
"""Least warm-up and window, s; steps of the pace that a window has at least."""


class FeedError(ExpectedError):
    """An emulated accelerator failed."""


class Feeding(Strict, frozen=True, kw_only=True):
    """The throughput of some emulated accelerators, and how busy they were."""

    accelerators: int
    workers: Annotated[int, about("Processes or threads of each accelerator's loader.")]
    samples_per_s: Annotated[float, about("Of all accelerators together.")]
    busy: Annotated[list[float], about("Share of time for which each was busy.")]
    window_s: float
    cpu_s: Annotated[float, about("CPU seconds per sample, of all processes.")]
    cores_busy: Annotated[float | None, about("Share of the cores' time in use; null: unknown.")]
    io_waited: Annotated[float, about("Share of time in which a process waited for a disk.")]

    @property
    def fed(self) -> bool:
        """Whether every accelerator was busy enough."""
        return min(self.busy) >= BUSY


class Step(NamedTuple):
    """A step of an emulated accelerator; times by `perf_counter`, s."""

    asked_s: float
    ended_s: float
    busy_s: float
    samples: int


def accelerator(
    path: Any, dataset: Any, order: Any, step_s: Sequence[float], pipe: Connection
) -> None:
    """One emulated accelerator; it sends its start, and then its steps, to the parent. `step_s` are
    replayed in turn."""
    batches = path.batches(dataset, order)
    # The first batches of all workers are ready at once, so they are taken before the window.
    for _ in range(path.round_size):
        next(batches)
    pipe.send(None)
    pipe.send(take_batches(batches, step_s, pipe.recv()))


def take_batches(batches: Iterable[Any], step_s: Sequence[float], until_s: float) -> list[Step]:
    """Take batches until `until_s`: wait for one, be busy, ask for the next. The excess of a pause
    that takes too long counts as idle: a process without a core submits late."""
    steps: list[Step] = []
    paces, taken, asked_s = cycle(step_s), iter(batches), perf_counter()
    while asked_s < until_s:
        batch, busy_s = next(taken), next(paces)
        sleep(busy_s)
        steps.append(Step(asked_s, perf_counter(), busy_s, len(batch["input_ids"])))
        asked_s = steps[-1].ended_s
    return steps


def measure(
    pipes: Sequence[Connection], round_size: int, step_s: Sequence[float], workers: int
) -> Feeding:
    """The window of the accelerators at the other ends of these pipes; the `workers` of each loader
    deliver `round_size` batches at a time. Raises FeedError if one of them fails."""
    for pipe in pipes:
        hear(pipe)
    pace_s = fmean(step_s)
    begin_s = perf_counter() + max(WARMUP_S, round_size * pace_s)
    end_s = begin_s + max(WINDOW_S, WINDOW_STEPS * pace_s / BUSY, sum(step_s))
    for pipe in pipes:
        pipe.send(end_s)
    sleep(max(0.0, begin_s - perf_counter()))
    before = host_load()
    sleep(max(0.0, end_s - perf_counter()))
    used = {name: after - before[name] for name, after in host_load().items() if name in before}
    rate, busy, wall_s = 0.0, [], end_s - begin_s
    for steps in [window(hear(pipe), begin_s, end_s, round_size) for pipe in pipes]:
        took_s = steps[-1].ended_s - steps[0].asked_s
        rate += sum(step.samples for step in steps) / took_s
        busy.append(sum(step.busy_s for step in steps) / took_s)
    return Feeding(
        accelerators=len(pipes),
        workers=workers,
        samples_per_s=rate,
        busy=busy,
        window_s=wall_s,
        cpu_s=used["job_cpu_s"] / wall_s / rate,
        cores_busy=used["cores_busy_s"] / used["cores_s"] if used["cores_s"] else None,
        io_waited=used.get("io_waited_s", 0.0) / wall_s,
    )


def window(steps: Sequence[Step], begin_s: float, end_s: float, round_size: int) -> list[Step]:
    """The steps inside, in whole rounds of the loader's workers if there is one. Raises FeedError
    without a step."""
    inside = [one for one in steps if begin_s <= one.asked_s and one.ended_s <= end_s]
    if not inside:
        raise FeedError(f"an accelerator got no whole batch in {end_s - begin_s:.0f} s")
    return inside[: len(inside) // round_size * round_size] or inside


@contextmanager
def process(call: Callable[[Connection], None]) -> Iterator[Connection]:
    """A process that makes the call, with one end of a pipe; yields the other, and ends it."""
    context = get_context("fork")
    here, there = context.Pipe()

    def run() -> None:
        die_with_parent()
        try:
            call(there)
        except Exception as error:
            there.send(classify(error).message)

    child = context.Process(target=run)
    child.start()
    there.close()  # so that the pipe ends with the process
    try:
        yield here
    finally:
        child.kill()
        child.join()


def hear(pipe: Connection) -> Any:
    """What the other end sends next. Raises FeedError if its process has failed."""
    try:
        said = pipe.recv()
    except EOFError:
        raise FeedError("an accelerator's process was killed; often for lack of memory") from None
    if isinstance(said, str):
        raise FeedError(said)
    return said
