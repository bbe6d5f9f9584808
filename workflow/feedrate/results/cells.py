"""From the rows of runs to one row per cell: medians, intervals, speed-ups, losses, verdicts."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from feedrate.config.values import cell_name
from feedrate.results.columns import CELLS
from feedrate.results.schema import VALUES
from feedrate.results.settings import CollectSettings, CollectStudy
from feedrate.results.statistics import median_interval, ratio_interval, spread
from feedrate.results.tables import Row
from feedrate.results.verdicts import cell_verdict

Key = tuple[str, str, str]
"""Study, device, cell."""
STATUSES = ("ok", "out_of_memory", "failed", "invalid", "unsupported")
"""A cell's status is the first of these among its runs."""
OVER_REPEATS: dict[str, Callable[[Sequence[Any]], Any]] = {
    "median": lambda values: float(np.median(values)),
    "largest": max,
    "smallest": min,
}
"""How the values of a cell's ok runs combine, by the words of the schema."""
COMBINED = {c.name: VALUES[c.name].repeats for c in CELLS if c.name in VALUES}
FEWEST = 2
"""Repeats from which seeds have a range."""


def combine(runs: Iterable[Row], settings: CollectSettings) -> dict[str, list[Row]]:
    """One row per cell, by study, in the order in which cells first appear among `runs`."""
    groups: dict[Key, list[Row]] = {}
    for run in runs:
        groups.setdefault((run["study"], run["device"], run["cell"]), []).append(run)
    rates = {key: rates_of(group) for key, group in groups.items()}
    baselines: dict[Key, Key] = {
        key: (key[0], key[1], cell_name(settings.studies[key[0]].baseline_of(group[0])))
        for key, group in groups.items()
    }
    shifts = loss_shifts(groups, baselines)
    rows: dict[str, list[Row]] = {}
    for key, group in groups.items():
        study, device, _ = key
        facts = settings.studies[study]
        row = _cell(group, facts, rates[key])
        row |= _speedup(rates[key], rates.get(baselines[key], []), facts.thresholds.confidence)
        row |= _cost(row["samples_per_s"], settings.price_usd_per_hour.get(device))
        row |= shifts[key]
        memory_gib = settings.memory_gib.get(device)
        found = cell_verdict(row, group[0], facts.thresholds, memory_gib)
        row |= {"verdict": found.name, "why": found.why}
        rows.setdefault(study, []).append(row)
    return rows


def _cell(group: Sequence[Row], facts: CollectStudy, rates: Sequence[float]) -> Row:
    first, status = group[0], status_of(group)
    good = [run for run in group if run["status"] == "ok"]
    count = Counter(run["status"] for run in group)
    interval = median_interval(rates, facts.thresholds.confidence) if rates else (None,) * 3
    share = spread(rates) if rates else None
    return {
        **{name: first[name] for name in ("study", "device", "cell", *facts.factors)},
        **{name: first.get(name) for name in ("task", "world_size", "nodes", "batch_size")},
        "status": status,
        "cause": cause_of(group, status),
        "runs": len(group) - count["unsupported"],
        **{f"{name}_runs": count[name] for name in STATUSES[:-1]},
        **{name: _combine(good, name, how) for name, how in COMBINED.items()},
        **dict(zip(("samples_per_s", "ci_low", "ci_high"), interval, strict=True)),
        "spread": share,
        "noisy": share is not None and share > facts.thresholds.noise_share,
    }


def _combine(runs: Iterable[Row], name: str, how: str) -> Any:
    """The value of a cell, over the runs that have one; None where none has."""
    known = [run[name] for run in runs if run.get(name) is not None]
    return OVER_REPEATS[how](known) if known else None


def status_of(group: Iterable[Row]) -> str:
    """A cell's status, from those of its runs (one at least)."""
    found = {run["status"] for run in group}
    return next(status for status in STATUSES if status in found)


def cause_of(group: Sequence[Row], status: str) -> str:
    """Why the cell has its status; of an ok cell, why the first of its other runs does not
    count."""
    lost = [run for run in group if run["status"] != status] if status == "ok" else []
    told = lost or [run for run in group if run["status"] == status]
    return next((run["cause"] for run in told if run["cause"]), "")


def rates_of(group: Iterable[Row]) -> list[float]:
    """samples_per_s of the ok runs."""
    return [run["samples_per_s"] for run in group if run["status"] == "ok"]


def _speedup(rates: Sequence[float], baseline: Sequence[float], confidence: float) -> Row:
    ratio: tuple[float | None, ...] = (None, None, None)
    if rates and baseline:
        same = rates is baseline
        ratio = (1.0, 1.0, 1.0) if same else ratio_interval(rates, baseline, confidence)
    return dict(zip(("speedup", "speedup_ci_low", "speedup_ci_high"), ratio, strict=True))


def _cost(samples_per_s: float | None, usd_per_hour: float | None) -> Row:
    """The cost of training on a million samples, at the price of the job's devices."""
    known = samples_per_s and usd_per_hour
    cost = usd_per_hour / 3600 / samples_per_s * 1e6 if known else None  # type: ignore[operator]
    return {"usd_per_million_samples": cost}


def loss_shifts(cells: Mapping[Key, Sequence[Row]], baselines: Mapping[Key, Key]) -> dict[Key, Row]:
    """For each cell, how far the loss at its end is from its baseline's; None where unknown.

    `loss_shift` is the mean difference over common repeats, which share a seed and so see the same
    samples in the same order. `loss_seeds` is what seeds alone do: the range of the baseline's
    repeats or, where that is larger, the median range of the cells that are compared with it; so
    two seeds that happen to agree flag no cell. `loss_departs` says whether the shift is larger. It
    takes two repeats in common, trained on as many samples. Cells that keep an epoch's smaller last
    batch see an unknown number of samples and are not compared.
    """
    ends = {key: _loss_ends(runs) for key, runs in cells.items()}
    ranges = {k: max(e.values()) - min(e.values()) for k, e in ends.items() if len(e) >= FEWEST}
    compared: dict[Key, list[float]] = defaultdict(list)
    for key, spread_of_cell in ranges.items():
        compared[baselines[key]].append(spread_of_cell)
    rows: dict[Key, Row] = {}
    for key, baseline in baselines.items():
        known, seeds, shift = compared.get(baseline), None, None
        if known and baseline in ranges:
            seeds = max(ranges[baseline], float(np.median(known)))
        common = sorted(ends[key].keys() & ends.get(baseline, {}).keys())
        if key != baseline and seeds is not None and len(common) >= FEWEST:
            shift = float(np.mean([ends[key][one] - ends[baseline][one] for one in common]))
        rows[key] = {
            "loss_shift": shift,
            "loss_seeds": None if shift is None and key != baseline else seeds,
            "loss_departs": None if shift is None or seeds is None else abs(shift) > seeds,
        }
    return rows


def _loss_ends(runs: Iterable[Row]) -> dict[tuple[int, int], float]:
    """Losses at the end of the ok runs, by repeat and samples trained on."""
    return {
        (run["repeat"], trained_samples(run)): run["loss_end"]
        for run in runs
        if run["status"] == "ok"
        and run.get("loss_end") is not None
        and not run.get("keeps_last_batch")
    }


def trained_samples(run: Row) -> int:
    """Samples that a run trained on, warm-up included."""
    steps = run["steps"] + run["warmup_steps"]
    return int(steps * run["batch_size"] * run["gradient_accumulation"] * run["world_size"])
