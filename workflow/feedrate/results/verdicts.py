"""What limits a cell, from the data-wait share and the ceilings; each verdict with its figures."""

from typing import Literal, NamedTuple

from feedrate.config.study import Thresholds

Name = Literal[
    "input-bound", "compute-bound", "memory-pressed", "communication-bound", "mixed", "undecided"
]


class Limits(NamedTuple):
    """Medians of a cell's good runs, and what is known of its device."""

    samples_per_s: float
    data_wait_share: float
    loader_samples_per_s: float | None
    model_samples_per_s: float | None
    peak_memory_gib: float | None
    memory_gib: float | None
    world_size: int
    workers: int
    cores: int | None = None
    """That the job was granted on a host, where they are fewer than its loader processes."""
    decodes_on_device: bool = False
    """Threads load beside the model then, one at least, whatever `workers` says."""

    @property
    def serial(self) -> bool:
        """Whether the process that trains loads too."""
        return self.workers == 0 and not self.decodes_on_device


class Verdict(NamedTuple):
    """What limits a cell, and why, in a sentence."""

    name: Name
    why: str


def verdict(limits: Limits, lines: Thresholds) -> Verdict:
    """The limit of one cell.

    input-bound: the wait is long and the model alone is faster. memory-pressed: the device's
    memory is nearly full. communication-bound: several ranks, little wait, and the model alone
    (no gradients exchanged) is much faster. compute-bound: little wait, a loader with headroom,
    and the model alone no faster. Between these lines a cell is mixed; without a measured ceiling
    that the decision needs it is undecided.
    """
    replay = _over(limits.model_samples_per_s, limits.samples_per_s)
    drain = _over(limits.loader_samples_per_s, limits.samples_per_s)
    figures = _figures(limits, replay, drain)
    name, reason = _decide(limits, lines, replay, drain)
    return Verdict(name, f"{reason}: {figures}.")


def out_of_memory(cause: str) -> Verdict:
    """The verdict of a cell whose runs all ran out of memory."""
    return Verdict("memory-pressed", cause)


def _decide(
    limits: Limits, lines: Thresholds, replay: float | None, drain: float | None
) -> tuple[Name, str]:
    wait = limits.data_wait_share
    faster_alone = replay is not None and replay >= lines.replay_gain
    if wait >= lines.input_bound_wait_share and (replay is None or faster_alone):
        return "input-bound", "The device waits for data"
    if _full(limits) >= lines.memory_pressed_share:
        return "memory-pressed", "The device's memory is nearly full"
    if wait >= lines.input_bound_wait_share:
        return "mixed", "The wait is long, but the model alone is no faster"
    if wait > lines.compute_bound_wait_share:
        return "mixed", "Loading and computing both cost time"
    if replay is None:
        return "undecided", "There is little wait, but the model alone was not measured"
    if faster_alone and limits.world_size > 1 and replay >= lines.headroom:
        return "communication-bound", "There is little wait, but the ranks together are slower"
    if faster_alone:
        return "mixed", "There is little wait, yet the model alone is faster"
    if limits.serial:
        return "compute-bound", "Loading hardly adds to the step"
    if drain is None:
        return "undecided", "There is little wait, but the loader alone was not measured"
    if drain < lines.headroom:
        return "mixed", "There is little wait, but the loader has little headroom"
    return "compute-bound", "The data are there before the device asks for them"


def _figures(limits: Limits, replay: float | None, drain: float | None) -> str:
    """The figures that the decision rests on, in words."""
    parts = [f"{limits.data_wait_share:.1%} of the time is spent waiting for batches"]
    if replay is not None:
        parts.append(f"the model alone runs at {replay:.2f} times the measured rate")
    if drain is not None:
        parts.append(f"the loader alone at {drain:.2f} times")
    if limits.serial:
        parts.append("with no worker the loader is serial, so its time adds to the model's")
    if limits.cores is not None:
        each = " a rank" * (limits.world_size > 1)
        shared = f"{limits.cores} core{'s' * (limits.cores > 1)}"
        parts.append(f"{limits.workers} workers{each} share {shared}")
    if limits.peak_memory_gib is not None and limits.memory_gib is not None:
        parts.append(f"{_full(limits):.0%} of the device's memory is used at the peak")
    return ", ".join(parts)


def _full(limits: Limits) -> float:
    """Peak memory over the device's; 0 where either is not known."""
    return _over(limits.peak_memory_gib, limits.memory_gib) or 0.0


def _over(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None
