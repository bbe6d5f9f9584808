"""Verdicts: the limit of a cell, from its wait for data and its ceilings; and the cell to use."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from feedrate.config.study import Thresholds
from feedrate.config.values import cell_name, level_text
from feedrate.results.settings import CollectStudy
from feedrate.results.tables import Row

Name = Literal[
    "input-bound", "compute-bound", "memory-pressed", "communication-bound", "mixed", "undecided"
]


class Limits(NamedTuple):
    """Medians of a cell's ok runs, and facts about its device."""

    samples_per_s: float
    data_wait_share: float
    loader_samples_per_s: float | None
    model_samples_per_s: float | None
    peak_memory_gib: float | None
    memory_gib: float | None
    """Memory of a device, as its driver reports it, else as registered."""
    world_size: int
    workers: int
    cores: int | None = None
    """Cores of the job on a host, where they are fewer than its loader processes."""
    reserved_memory_gib: float | None = None
    """Peak that the allocator took, with what it keeps for later."""
    decodes_on_device: bool = False
    """Then at least one thread loads in parallel with the model, whatever `workers` says."""

    @property
    def serial(self) -> bool:
        """Whether the process that trains also loads."""
        return self.workers == 0 and not self.decodes_on_device

    @property
    def memory_share(self) -> float:
        """Peak memory over the device's; 0 where either is unknown."""
        return _over(self.peak_memory_gib, self.memory_gib) or 0.0


class Verdict(NamedTuple):
    """The limit of a cell, and the reason in a sentence."""

    name: Name | Literal[""]
    why: str


def cell_verdict(cell: Row, lines: Thresholds, memory_gib: float | None) -> Verdict:
    """The verdict of a cell's row; `memory_gib` is the device's, as registered."""
    if cell["status"] == "out_of_memory":
        return Verdict("memory-pressed", cell["cause"])
    if cell["status"] != "ok":
        return Verdict("", cell["cause"])
    if cell["task"] == "inference":  # no loader runs in parallel, and no part is measured alone
        return Verdict("", "")
    limits = Limits(
        samples_per_s=cell["samples_per_s"],
        data_wait_share=cell["data_wait_share"],
        loader_samples_per_s=cell["loader_samples_per_s"],
        model_samples_per_s=cell["model_samples_per_s"],
        peak_memory_gib=cell["peak_memory_gib"],
        memory_gib=memory_gib and (cell.get("device_memory_gib") or memory_gib),
        reserved_memory_gib=cell.get("reserved_memory_gib"),
        world_size=cell["world_size"],
        workers=cell["loader_workers"],
        cores=cell["cores_granted"] if cell["oversubscribed"] else None,
        decodes_on_device=cell["decodes_on_device"],
    )
    return verdict(limits, lines)


def verdict(limits: Limits, lines: Thresholds) -> Verdict:
    """The limit of one cell.

    input-bound: the wait is long and the model alone is faster. memory-pressed: the device's
    memory is nearly full. communication-bound: several ranks, little wait, and the model alone
    (no gradients exchanged) is much faster. compute-bound: little wait, a loader with headroom,
    and the model alone no faster. Between these lines a cell is mixed; where a ceiling that the
    decision needs was not measured, it is undecided.
    """
    replay = _over(limits.model_samples_per_s, limits.samples_per_s)
    drain = _over(limits.loader_samples_per_s, limits.samples_per_s)
    name, reason = _decide(limits, lines, replay, drain)
    return Verdict(name, f"{reason}: {_figures(limits, replay, drain)}.")


def _decide(
    limits: Limits, lines: Thresholds, replay: float | None, drain: float | None
) -> tuple[Name, str]:
    wait = limits.data_wait_share
    faster_alone = replay is not None and replay >= lines.replay_gain
    if wait >= lines.input_bound_wait_share and (replay is None or faster_alone):
        return "input-bound", "The device waits for data"
    if limits.memory_share >= lines.memory_pressed_share:
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
    return "compute-bound", "The data are ready before the device asks for them"


def _figures(limits: Limits, replay: float | None, drain: float | None) -> str:
    """The figures behind the decision, in words."""
    parts = [f"{limits.data_wait_share:.1%} of the time is spent waiting for batches"]
    if replay is not None:
        parts.append(f"the model alone runs at {replay:.2f} times the measured rate")
    if drain is not None:
        parts.append(f"the loader alone at {drain:.2f} times")
    if limits.serial:
        parts.append("with no worker the loader is serial, so its time adds to the model's")
    if limits.cores is not None:
        each = " per rank" * (limits.world_size > 1)
        parts.append(f"{limits.workers} workers{each} share {_count(limits.cores, 'core')}")
    if limits.peak_memory_gib is not None and limits.memory_gib is not None:
        held = _over(limits.reserved_memory_gib, limits.memory_gib)
        also = "" if held is None else f" (the allocator holds {held:.0%})"
        parts.append(f"{limits.memory_share:.0%} of the device's memory is used at the peak{also}")
    return ", ".join(parts)


def recommend(cells: Iterable[Row], study: CollectStudy) -> None:
    """Set `recommended` and `recommendation` in the cell rows of one study.

    The cells of a device are compared with each other, within each level of the `within` factors.
    Of those within noise of the fastest, the one that differs least from the baseline is
    recommended; workers count last, and fewer are better. A cell is within noise where its interval
    overlaps that of the fastest; a single run has no interval and is within noise where it is
    slower by at most the study's noise_share. Nothing is recommended where a device has only one
    setting, and in inference, where throughput is not all that counts.
    """
    workers = study.workers_factor
    if workers and len(study.factors[workers].levels) == 1:
        workers = None
    groups: dict[str, list[Row]] = {}
    cells = list(cells)
    own = [cell for cell in cells if not cell.get("measured_as")]
    tried = Counter(cell["device"] for cell in own if cell["status"] != "unsupported")
    for cell in cells:
        cell["recommended"], cell["recommendation"] = False, ""
        choice = tried[cell["device"]] > 1 and cell.get("task") != "inference"
        if choice and cell["status"] == "ok" and not cell.get("measured_as"):
            others = {f: cell[f] for f in study.within}
            groups.setdefault(f"{cell['device']}|{cell_name(others)}", []).append(cell)
    for group in groups.values():
        chosen, best = _choose(group, study, workers)
        text = _compared(chosen, best, study, workers, len(group)) + _cores(chosen, workers)
        chosen["recommended"], chosen["recommendation"] = True, f"{text}."


def _choose(group: list[Row], study: CollectStudy, workers: str | None) -> tuple[Row, Row]:
    """The cell to use, and the fastest; `workers` is the factor that sets them, if any."""
    best = max(group, key=lambda cell: cell["samples_per_s"])

    def within_noise(cell: Row) -> bool:
        if cell["ci_high"] is None or best["ci_low"] is None:
            slowest = best["samples_per_s"] * (1 - study.thresholds.noise_share)
            return cell is best or bool(cell["samples_per_s"] >= slowest)
        return cell is best or bool(cell["ci_high"] >= best["ci_low"])

    def cost(cell: Row) -> tuple[int, int, float]:
        few = cell[workers] if workers else 0
        return len(_changed(cell, study, workers)), few, -cell["samples_per_s"]

    return min(filter(within_noise, group), key=cost), best


def _changed(cell: Row, study: CollectStudy, workers: str | None) -> dict[str, Any]:
    """The levels, workers aside, in which a cell differs from its baseline."""
    baseline = study.baseline_of(cell)
    return {f: cell[f] for f in study.factors if f != workers and cell[f] != baseline[f]}


def _compared(chosen: Row, best: Row, study: CollectStudy, workers: str | None, tried: int) -> str:
    use = _name(chosen, study, workers) + " per rank" * bool(workers) or "the baseline"
    text = f"Use {use}: {chosen['samples_per_s']:.4g} samples/s"
    if tried == 1:
        return f"{text}, the only setting with data"
    if chosen is best:
        return f"{text}, the best of {tried} settings"
    name = _name(best, study, workers) or "at the baseline"
    fastest = f"{best['samples_per_s']:.4g} {'with ' * bool(workers)}{name}"
    return f"{text}, within noise of the best ({fastest})"


def _name(cell: Row, study: CollectStudy, workers: str | None) -> str:
    """The levels that differ from the baseline, and the workers: `decode = host, 2 workers`."""
    levels = [f"{f} = {level_text(v)}" for f, v in _changed(cell, study, workers).items()]
    if workers:
        levels.append(_count(cell[workers], "worker") if cell[workers] else "no worker")
    return ", ".join(levels)


def _cores(chosen: Row, workers: str | None) -> str:
    cores = chosen["cores_granted"]
    if workers is None or cores is None:
        return ""
    nodes = chosen["nodes"] or 1
    processes = (chosen[workers] + 1) * (chosen["world_size"] or 1) // nodes
    short = f", fewer than its {processes} busy processes" if processes > cores else ""
    where = "on each host " * (nodes > 1)
    return f"; {where}the job has {_count(cores, 'CPU core')}{short}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _over(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None
