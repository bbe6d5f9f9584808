"""The smallest worker count within noise of the best, for each device and other levels."""

from collections.abc import Iterable
from typing import Any

from feedrate.config.plan import cell_name
from feedrate.results.settings import CollectStudy

Row = dict[str, Any]


def recommend(cells: Iterable[Row], study: CollectStudy) -> None:
    """Set `recommended` and `recommendation` in the cell rows of one study.

    Cells are compared that differ in nothing but their workers. A cell is within noise of the
    best where their intervals overlap; a cell of a single run has none, and is within noise
    where it is slower by no more than the study's noise_share.
    """
    workers = study.workers_factor
    groups: dict[str, list[Row]] = {}
    for cell in cells:
        cell["recommended"], cell["recommendation"] = False, ""
        if workers and cell["status"] == "ok":
            others = {f: cell[f] for f in study.factors if f != workers}
            groups.setdefault(f"{cell['device']}|{cell_name(others)}", []).append(cell)
    for group in groups.values():
        if workers:
            _mark(group, workers, study.thresholds.noise_share)


def _mark(group: list[Row], workers: str, noise_share: float) -> None:
    best = max(group, key=lambda cell: cell["samples_per_s"])
    chosen = min(
        (cell for cell in group if _within_noise(cell, best, noise_share)),
        key=lambda cell: cell[workers],
    )
    chosen["recommended"] = True
    chosen["recommendation"] = _sentence(chosen, best, workers, len(group))


def _within_noise(cell: Row, best: Row, noise_share: float) -> bool:
    if cell is best:
        return True
    if cell["ci_high"] is None or best["ci_low"] is None:
        return bool(cell["samples_per_s"] >= best["samples_per_s"] * (1 - noise_share))
    return bool(cell["ci_high"] >= best["ci_low"])


def _sentence(chosen: Row, best: Row, workers: str, tried: int) -> str:
    count = chosen[workers]
    rate = f"{chosen['samples_per_s']:.4g} samples/s"
    text = f"Use {_workers(count)} a rank: {rate}"
    if tried == 1:
        text += ", the only setting with data"
    elif chosen is best:
        text += f", the best of {tried} settings"
    else:
        text += (
            f", within noise of the best ({best['samples_per_s']:.4g} with "
            f"{_workers(best[workers])})"
        )
    cores = chosen["cores_granted"]
    if cores is None:
        return f"{text}."
    processes = (count + 1) * (chosen["world_size"] or 1)
    short = f", fewer than its {processes} busy processes" if processes > cores else ""
    return f"{text}; the job has {cores} CPU core{'s' * (cores != 1)}{short}."


def _workers(count: int) -> str:
    return "no worker" if count == 0 else f"{count} worker{'s' * (count != 1)}"
