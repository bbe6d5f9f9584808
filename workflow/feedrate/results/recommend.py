"""What to use: the smallest change, and fewest workers, within noise of the best."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from feedrate.config.base import level_text
from feedrate.config.plan import cell_name
from feedrate.results.settings import CollectStudy

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
