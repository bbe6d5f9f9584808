"""What limits a cell, from the data-wait share and the ceilings; each verdict with its figures."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

from feedrate.config.study import Thresholds
from feedrate.config.values import cell_name, level_text
from feedrate.results.settings import CollectStudy

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


# What to use: the smallest change, and fewest workers, within noise of the best.

Row = dict[str, Any]
Rank = Callable[[Row], Any]


def recommend(cells: Iterable[Row], study: CollectStudy) -> None:
    """Set `recommended` and `recommendation` in the cell rows of one study.

    All cells of a device are compared (that no factor of `within` tells apart). Of those within
    noise of the best the one is chosen that departs least from the baseline; workers count last,
    and fewer are the smaller choice. A cell is within noise of the best where their intervals
    overlap; a cell of a single run has none, and is within noise
    where it is slower by no more than the study's noise_share. Where a device was given one
    setting only there is nothing to choose, and nothing is recommended; nor is it in inference,
    where throughput is not all that counts.
    """
    workers = study.workers_factor
    if workers and len(study.factors[workers].levels) == 1:
        workers = None
    groups: dict[str, list[Row]] = {}
    cells = list(cells)
    tried = Counter(cell["device"] for cell in cells if cell["status"] != "unsupported")
    for cell in cells:
        cell["recommended"], cell["recommendation"] = False, ""
        if cell.get("task") == "inference":
            continue
        if cell["status"] == "ok" and tried[cell["device"]] > 1:
            others = {f: cell[f] for f in study.within}
            groups.setdefault(f"{cell['device']}|{cell_name(others)}", []).append(cell)
    for group in groups.values():
        chosen, best = _choose(group, study, workers)
        chosen["recommended"] = True
        text = _beside_best(chosen, best, study, workers, len(group))
        chosen["recommendation"] = text + (_cores(chosen, workers) if workers else "") + "."


def _choose(group: list[Row], study: CollectStudy, workers: str | None) -> tuple[Row, Row]:
    """The cell to use, and the fastest; `workers` is the factor that sets them, if any."""
    best = max(group, key=lambda cell: cell["samples_per_s"])
    near = [cell for cell in group if _within_noise(cell, best, study.thresholds.noise_share)]

    def departs(cell: Row) -> tuple[int, int, float]:
        few = cell[workers] if workers else 0
        return len(_changed(cell, study, workers)), few, -cell["samples_per_s"]

    return min(near, key=departs), best


def _changed(cell: Row, study: CollectStudy, workers: str | None) -> dict[str, Any]:
    """The levels, workers aside, in which a cell departs from its baseline."""
    baseline = study.baseline_of(cell)
    return {f: cell[f] for f in study.factors if f != workers and cell[f] != baseline[f]}


def _within_noise(cell: Row, best: Row, noise_share: float) -> bool:
    if cell is best:
        return True
    if cell["ci_high"] is None or best["ci_low"] is None:
        return bool(cell["samples_per_s"] >= best["samples_per_s"] * (1 - noise_share))
    return bool(cell["ci_high"] >= best["ci_low"])


def _beside_best(
    chosen: Row, best: Row, study: CollectStudy, workers: str | None, tried: int
) -> str:
    use = _name(chosen, study, workers) + " a rank" * bool(workers) or "the baseline"
    text = f"Use {use}: {chosen['samples_per_s']:.4g} samples/s"
    if tried == 1:
        return f"{text}, the only setting with data"
    if chosen is best:
        return f"{text}, the best of {tried} settings"
    name = _name(best, study, workers) or "at the baseline"
    fastest = f"{best['samples_per_s']:.4g} {'with ' * bool(workers)}{name}"
    return f"{text}, within noise of the best ({fastest})"


def _name(cell: Row, study: CollectStudy, workers: str | None) -> str:
    """`decode = host, 2 workers`: what departs from the baseline, and the workers."""
    levels = [f"{f} = {level_text(v)}" for f, v in _changed(cell, study, workers).items()]
    return ", ".join([*levels, _workers(cell[workers])] if workers else levels)


def _cores(chosen: Row, workers: str) -> str:
    cores = chosen["cores_granted"]
    if cores is None:
        return ""
    nodes = chosen["nodes"] or 1
    processes = (chosen[workers] + 1) * (chosen["world_size"] or 1) // nodes
    short = f", fewer than its {processes} busy processes" if processes > cores else ""
    where = "on each host " * (nodes > 1)
    return f"; {where}the job has {cores} CPU core{'s' * (cores != 1)}{short}"


def _workers(count: int) -> str:
    return "no worker" if count == 0 else f"{count} worker{'s' * (count != 1)}"
