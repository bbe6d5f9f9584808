"""What to use: the smallest change, or fewest workers, within noise of the best of its group."""

from collections.abc import Callable, Iterable
from typing import Any

from feedrate.config.base import level_text
from feedrate.config.plan import cell_name
from feedrate.results.settings import CollectStudy

Row = dict[str, Any]
Rank = Callable[[Row], Any]


def recommend(cells: Iterable[Row], study: CollectStudy) -> None:
    """Set `recommended` and `recommendation` in the cell rows of one study.

    In a study of workers, cells are compared that differ in nothing but their workers, and fewer
    workers are the smaller choice; in another all cells of a device (that no factor of `within`
    tells apart), and those that depart least from the baseline. A cell is within noise of the
    best where their intervals overlap; a cell of a single run has none, and is within noise
    where it is slower by no more than the study's noise_share. In inference nothing is recommended:
    throughput is not all that counts there.
    """
    workers = study.workers_factor
    apart = [f for f in study.factors if (f != workers if workers else f in study.within)]
    groups: dict[str, list[Row]] = {}
    for cell in cells:
        cell["recommended"], cell["recommendation"] = False, ""
        if cell["status"] == "ok" and cell.get("task") != "inference":
            others = {f: cell[f] for f in apart}
            groups.setdefault(f"{cell['device']}|{cell_name(others)}", []).append(cell)
    for group in groups.values():
        chosen, best = _choose(group, study)
        chosen["recommended"] = True
        if workers:
            chosen["recommendation"] = _workers_sentence(chosen, best, workers, len(group))
        else:
            chosen["recommendation"] = _sentence(chosen, best, study, len(group))


def _choose(group: list[Row], study: CollectStudy) -> tuple[Row, Row]:
    """The cell to use, and the fastest."""
    workers = study.workers_factor
    best = max(group, key=lambda cell: cell["samples_per_s"])
    near = [cell for cell in group if _within_noise(cell, best, study.thresholds.noise_share)]
    if workers:
        return min(near, key=lambda cell: cell[workers]), best
    return min(near, key=lambda cell: (len(_changed(cell, study)), -cell["samples_per_s"])), best


def _changed(cell: Row, study: CollectStudy) -> dict[str, Any]:
    """The levels in which a cell departs from its baseline."""
    baseline = study.baseline_of(cell)
    return {f: cell[f] for f in study.factors if cell[f] != baseline[f]}


def _within_noise(cell: Row, best: Row, noise_share: float) -> bool:
    if cell is best:
        return True
    if cell["ci_high"] is None or best["ci_low"] is None:
        return bool(cell["samples_per_s"] >= best["samples_per_s"] * (1 - noise_share))
    return bool(cell["ci_high"] >= best["ci_low"])


def _sentence(chosen: Row, best: Row, study: CollectStudy, tried: int) -> str:
    changed = _changed(chosen, study)
    name = ", ".join(f"{f} = {level_text(level)}" for f, level in changed.items())
    other = ", ".join(f"{f} = {level_text(v)}" for f, v in _changed(best, study).items())
    return _beside_best(f"Use {name or 'the baseline'}", chosen, best, other, tried) + "."


def _workers_sentence(chosen: Row, best: Row, workers: str, tried: int) -> str:
    count = chosen[workers]
    use = f"Use {_workers(count)} a rank"
    text = _beside_best(use, chosen, best, f"with {_workers(best[workers])}", tried)
    cores = chosen["cores_granted"]
    if cores is None:
        return f"{text}."
    processes = (count + 1) * (chosen["world_size"] or 1)
    short = f", fewer than its {processes} busy processes" if processes > cores else ""
    return f"{text}; the job has {cores} CPU core{'s' * (cores != 1)}{short}."


def _beside_best(use: str, chosen: Row, best: Row, best_name: str, tried: int) -> str:
    text = f"{use}: {chosen['samples_per_s']:.4g} samples/s"
    if tried == 1:
        return f"{text}, the only setting with data"
    if chosen is best:
        return f"{text}, the best of {tried} settings"
    return f"{text}, within noise of the best ({best['samples_per_s']:.4g} {best_name})"


def _workers(count: int) -> str:
    return "no worker" if count == 0 else f"{count} worker{'s' * (count != 1)}"
