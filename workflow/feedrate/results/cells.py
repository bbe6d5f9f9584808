"""From the rows of runs to one row a cell: medians, intervals, speed-ups, verdicts."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from feedrate.config.values import cell_name
from feedrate.results.columns import CELLS, Column, with_factors
from feedrate.results.settings import CollectSettings, CollectStudy
from feedrate.results.statistics import median, median_interval, ratio_interval, spread
from feedrate.results.tables import factor_kinds
from feedrate.results.verdicts import Limits, out_of_memory, recommend, verdict

# Equal quality: whether a cell's loss departs from its reference's by more than seeds make it.
# Cells of one seed see the same samples in the same order, and so repeats are compared in
# pairs. What seeds do is the range of the reference's repeats or, where that is larger, the
# median range of the cells that are held to it: two seeds of the reference that happen to agree
# flag nobody. At least two repeats in common are needed, and as many samples trained on. Cells
# that keep the smaller last batch of an epoch see other samples, how many is not known here,
# and are compared with none.

Row = dict[str, Any]
Key = tuple[str, str, str]
"""Study, device, cell."""
NAMES = ("loss_shift", "loss_seeds", "loss_departs")
FEWEST = 2
"""Repeats from which seeds have a range."""


def departures(
    cells: Mapping[Key, Sequence[Row]], reference_of: Mapping[Key, Key]
) -> dict[Key, Row]:
    """For each cell, by key, how far its loss is from its reference's; `cells` are rows of runs.

    `loss_shift` is the mean over the common repeats of cell minus reference, `loss_seeds` what
    seeds do, `loss_departs` whether the shift is more than that; None where it is not known.
    """
    ends = {key: _ends(runs) for key, runs in cells.items()}
    seeds = {key: _seeds(key, ends, reference_of) for key in set(reference_of.values())}
    return {key: _departure(key, ends, reference_of[key], seeds) for key in cells}


def trained_samples(run: Row) -> int:
    """Samples that a run trained on, warm-up included."""
    steps = run["steps"] + run["warmup_steps"]
    return int(steps * run["batch_size"] * run["gradient_accumulation"] * run["world_size"])


def _ends(runs: Iterable[Row]) -> dict[tuple[int, int], float]:
    """Losses at the end of the good runs, by repeat and samples."""
    return {
        (run["repeat"], trained_samples(run)): run["loss_end"]
        for run in runs
        if run["status"] == "ok"
        and run.get("loss_end") is not None
        and not run.get("keeps_last_batch")
    }


def _seeds(
    reference: Key,
    ends: Mapping[Key, Mapping[tuple[int, int], float]],
    reference_of: Mapping[Key, Key],
) -> float | None:
    own = ends.get(reference, {})
    if len(own) < FEWEST:
        return None
    held = [ends[key] for key, other in reference_of.items() if other == reference]
    ranges = [_range(losses) for losses in held if len(losses) >= FEWEST]
    return max(_range(own), float(np.median(ranges)))


def _range(losses: Mapping[Any, float]) -> float:
    return max(losses.values()) - min(losses.values())


def _departure(
    key: Key,
    ends: Mapping[Key, Mapping[tuple[int, int], float]],
    reference: Key,
    seeds: Mapping[Key, float | None],
) -> Row:
    margin = seeds[reference]
    common = ends[key].keys() & ends.get(reference, {}).keys()
    if margin is None or key == reference or len(common) < FEWEST:
        return dict.fromkeys(NAMES) | {"loss_seeds": margin if key == reference else None}
    shift = float(np.mean([ends[key][one] - ends[reference][one] for one in sorted(common)]))
    return dict(zip(NAMES, (shift, margin, abs(shift) > margin), strict=True))


MEDIANS = (
    "step_time_median_s",
    "step_time_p95_s",
    "step_time_p99_s",
    "first_step_s",
    "data_wait_share",
    "energy_j_per_sample",
    "power_w",
    "mfu",
    "mfu_achievable",
    "tflops_per_device",
    "loss_last",
    "loss_end",
    "trainer_samples_per_s",
    "loader_samples_per_s",
    "model_samples_per_s",
    "exchange_samples_per_s",
)
LARGEST = ("peak_memory_gib", "host_peak_memory_gib", "allocator_retries", "pixel_mean_abs_diff")
STATUSES = ("ok", "out_of_memory", "failed", "invalid", "unsupported")
"""A cell is what the first of these is that any of its runs ended in."""


def cell_columns(settings: CollectSettings) -> list[Column]:
    """The columns of cells.csv."""
    return with_factors(CELLS, factor_kinds(settings.studies, CELLS))


def cell_rows(runs: Iterable[Row], settings: CollectSettings) -> list[Row]:
    """One row a cell, in the order in which the cells first appear among `runs`."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for run in runs:
        groups.setdefault((run["study"], run["device"], run["cell"]), []).append(run)
    rates = {key: rates_of(group) for key, group in groups.items()}
    reference_of = {
        (study, device, cell): (
            study,
            device,
            cell_name(settings.studies[study].baseline_of(group[0])),
        )
        for (study, device, cell), group in groups.items()
    }
    shifts = departures(groups, reference_of)
    by_study: dict[str, list[Row]] = {}
    for (study, device, cell), group in groups.items():
        facts = settings.studies[study]
        row = _cell(group, facts, rates[study, device, cell])
        baseline = rates.get(reference_of[study, device, cell], [])
        row |= _speedup(rates[study, device, cell], baseline, facts.thresholds.confidence)
        row |= _cost(row["samples_per_s"], settings.price_usd_per_hour.get(device))
        row |= shifts[study, device, cell]
        row |= _verdict(row, group, facts, settings.memory_gib.get(device))
        by_study.setdefault(study, []).append(row)
    for study, rows in by_study.items():
        recommend(rows, settings.studies[study])
    return [row for rows in by_study.values() for row in rows]


def _cell(group: Sequence[Row], facts: CollectStudy, rates: Sequence[float]) -> Row:
    first = group[0]
    good = [run for run in group if run["status"] == "ok"]
    count = Counter(run["status"] for run in group)
    status = status_of(group)
    spread_share = spread(rates) if rates else None
    row: Row = {
        **{name: first[name] for name in ("study", "device", "cell", *facts.factors)},
        **{name: first.get(name) for name in ("task", "world_size", "nodes", "batch_size")},
        "status": status,
        "cause": cause_of(group, status),
        "runs": len(group) - count["unsupported"],
        **{f"{name}_runs": count[name] for name in STATUSES[:-1]},
        "spread": spread_share,
        "noisy": spread_share is not None and spread_share > facts.thresholds.noise_share,
        "cores_granted": min(_known(good, "cores_granted"), default=None),
        **{name: median([run.get(name) for run in good]) for name in MEDIANS},
        **{name: max(_known(good, name), default=None) for name in LARGEST},
    }
    estimate = median_interval(rates, facts.thresholds.confidence) if rates else (None,) * 3
    return row | dict(zip(("samples_per_s", "ci_low", "ci_high"), estimate, strict=True))


def status_of(group: Iterable[Row]) -> str:
    """What a cell is, by what its runs (one at least) ended in."""
    found = {run["status"] for run in group}
    return next(status for status in STATUSES if status in found)


def cause_of(group: Sequence[Row], status: str) -> str:
    """Why the cell is what it is; of a good one, why the first of its runs did not count."""
    lost = [run for run in group if run["status"] != status] if status == "ok" else []
    mine = lost or [run for run in group if run["status"] == status]
    return next((run["cause"] for run in mine if run["cause"]), "")


def _speedup(rates: Sequence[float], baseline: Sequence[float], confidence: float) -> Row:
    names = ("speedup", "speedup_ci_low", "speedup_ci_high")
    if not rates or not baseline:
        return dict.fromkeys(names)
    if rates is baseline:
        return dict(zip(names, (1.0, 1.0, 1.0), strict=True))
    return dict(zip(names, ratio_interval(rates, baseline, confidence), strict=True))


def _cost(samples_per_s: float | None, usd_per_hour: float | None) -> Row:
    """What training on a million samples costs at the price of the job's devices."""
    if not samples_per_s or not usd_per_hour:
        return {"usd_per_million_samples": None}
    return {"usd_per_million_samples": usd_per_hour / 3600 / samples_per_s * 1e6}


def _verdict(row: Row, group: Sequence[Row], facts: CollectStudy, memory_gib: float | None) -> Row:
    if row["status"] == "out_of_memory":
        found = out_of_memory(row["cause"])
    elif row["status"] != "ok":
        return {"verdict": "", "why": row["cause"]}
    elif row["task"] == "inference":  # no loader runs beside, and nothing is measured alone
        return {"verdict": "", "why": ""}
    else:
        found = verdict(
            Limits(
                samples_per_s=row["samples_per_s"],
                data_wait_share=row["data_wait_share"],
                loader_samples_per_s=row["loader_samples_per_s"],
                model_samples_per_s=row["model_samples_per_s"],
                peak_memory_gib=row["peak_memory_gib"],
                memory_gib=memory_gib,
                world_size=row["world_size"],
                workers=group[0]["loader_workers"],
                cores=row["cores_granted"] if group[0].get("oversubscribed") else None,
                decodes_on_device=group[0]["decodes_on_device"],
            ),
            facts.thresholds,
        )
    return {"verdict": found.name, "why": found.why}


def rates_of(group: Iterable[Row]) -> list[float]:
    """samples_per_s of the runs that count."""
    return [run["samples_per_s"] for run in group if run["status"] == "ok"]


def _known(runs: Iterable[Row], name: str) -> list[Any]:
    return [run[name] for run in runs if run.get(name) is not None]
