"""From the table of runs to one row per cell: medians, intervals, speed-ups, losses, verdicts."""

from collections.abc import Sequence

import pandas as pd

from feedrate.config.values import cell_name
from feedrate.results.columns import CELLS
from feedrate.results.schema import VALUES
from feedrate.results.settings import CollectSettings, CollectStudy
from feedrate.results.statistics import median_interval, ratio_interval, spread
from feedrate.results.tables import Row, rows_of
from feedrate.results.verdicts import cell_verdict, recommend

KEY = ["study", "device", "cell"]
"""The columns that identify a cell."""
BASELINE = ["study", "device", "baseline"]
"""The columns that identify the baseline of a cell."""
STATUSES = ("ok", "out_of_memory", "failed", "invalid", "unsupported")
"""A cell's status is the first of these among its runs."""
OVER_REPEATS = {"median": "median", "largest": "max", "smallest": "min"}
"""How the values of a cell's ok runs combine: pandas' name by the schema's word."""
COMBINED = {c.name: VALUES[c.name].repeats for c in CELLS if c.name in VALUES}
INTERVALS = ["ci_low", "ci_high", "spread", "speedup", "speedup_ci_low", "speedup_ci_high"]
FEWEST = 2
"""Repeats from which seeds have a range."""


def cell_rows(runs: pd.DataFrame, settings: CollectSettings) -> list[Row]:
    """A row for each cell, study by study, with its verdict and a recommendation per device.

    `runs` is the table of `run_table`.
    """
    rows: list[Row] = []
    for name, study in settings.studies.items():
        cells = rows_of(combine(runs[runs["study"] == name], study, settings).reset_index())
        for cell in cells:
            found = cell_verdict(cell, study.thresholds, settings.memory_gib.get(cell["device"]))
            cell |= {"verdict": found.name, "why": found.why}
        recommend(cells, study)
        rows += cells
    return rows


def combine(runs: pd.DataFrame, study: CollectStudy, settings: CollectSettings) -> pd.DataFrame:
    """The cells of a study by KEY, in the order in which they first appear among `runs`.

    What is not combined is that of the cell's first run.
    """
    cells = runs.drop_duplicates(KEY).set_index(KEY)
    states = outcomes(runs)
    cells[states.columns] = states
    ok = runs[runs["status"] == "ok"].groupby(KEY)
    for word, function in OVER_REPEATS.items():
        names = [name for name, how in COMBINED.items() if how == word]
        cells[names] = ok[names].agg(function)
    baselines = [cell_name(study.baseline_of(row)) for row in rows_of(cells)]
    cells["baseline"] = pd.Series(baselines, cells.index, dtype=object)
    rates = ok["samples_per_s"].agg(list).to_dict()
    intervals = [
        _intervals(rates.get(key), rates.get((*key[:2], baseline)), study.thresholds.confidence)
        for key, baseline in cells["baseline"].items()
    ]
    cells[INTERVALS] = pd.DataFrame(intervals, cells.index, INTERVALS, dtype=float)
    cells["noisy"] = cells["spread"] > study.thresholds.noise_share
    usd_per_hour = cells.index.get_level_values("device").map(settings.price_usd_per_hour.get)
    cost_usd = usd_per_hour.astype(float) / 3600 / cells["samples_per_s"] * 1e6
    cells["usd_per_million_samples"] = cost_usd
    return cells.join(loss_shifts(runs, cells["baseline"]))


def outcomes(runs: pd.DataFrame) -> pd.DataFrame:
    """Status, cause and numbers of runs of each cell, by KEY.

    The cause is that of the first run with the cell's status; of an ok cell, that of the first run
    that does not count.
    """
    statuses = [runs[name] for name in KEY], runs["status"]
    counts = pd.crosstab(*statuses).reindex(columns=list(STATUSES), fill_value=0)
    cells = counts.drop(columns="unsupported").add_suffix("_runs")
    cells["runs"] = cells.sum(axis="columns")
    cells["status"] = counts.gt(0).idxmax(axis="columns")
    cells["partly"] = cells["ok_runs"].between(1, cells["runs"] - 1)
    of_cell = cells.reindex(pd.MultiIndex.from_frame(runs[KEY])).set_index(runs.index)
    tells = (runs["status"] == of_cell["status"]) != of_cell["partly"]
    told = runs[tells & (runs["cause"] != "")].drop_duplicates(KEY).set_index(KEY)
    cells["cause"] = told["cause"]
    return cells.drop(columns="partly").fillna({"cause": ""})


def _intervals(
    rates: Sequence[float] | None, baseline: Sequence[float] | None, confidence: float
) -> list[float | None]:
    """The values of INTERVALS for a cell with these rates of its ok runs, if it has any."""
    if not rates:
        return [None] * len(INTERVALS)
    speedup: Sequence[float | None] = (None, None, None)
    if baseline:
        same = rates is baseline
        speedup = (1.0, 1.0, 1.0) if same else ratio_interval(rates, baseline, confidence)
    return [*median_interval(rates, confidence)[1:], spread(rates), *speedup]


def loss_shifts(runs: pd.DataFrame, baselines: pd.Series) -> pd.DataFrame:
    """The difference of each cell's final loss from that of its baseline; missing where unknown.

    `baselines` has the names of the baseline cells by KEY, which is the index of the result too.
    `loss_shift` is the mean difference over common repeats, which share a seed and so see the same
    samples in the same order. `loss_seeds` is the effect of seeds: the range of the baseline's
    repeats or, where that is larger, the median range of the cells that are compared with it; so
    two seeds that happen to agree flag no cell. `loss_departs` says whether the shift is larger. It
    takes two repeats in common, trained on as many samples. Cells that keep an epoch's smaller last
    batch see an unknown number of samples and are not compared.
    """
    known = (runs["status"] == "ok") & runs["loss_end"].notna()
    ends = runs[known & ~runs["keeps_last_batch"].fillna(False)]
    ends = ends.assign(trained=trained_samples(ends))[[*KEY, "repeat", "trained", "loss_end"]]
    losses = ends.groupby(KEY)["loss_end"]
    ranges = (losses.max() - losses.min())[losses.size() >= FEWEST]
    cells = baselines.rename("baseline").reset_index()
    cells = cells.join(ranges.rename("range"), on=KEY)
    cells = cells.join(ranges.rename("loss_seeds"), on=BASELINE)
    typical = cells.groupby(BASELINE)["range"].transform("median")
    seeds = cells["loss_seeds"].clip(lower=typical)
    of_baseline = ends.set_axis([*BASELINE, "repeat", "trained", "loss_of_baseline"], axis=1)
    pairs = ends.merge(cells[cells["cell"] != cells["baseline"]]).merge(of_baseline)
    pairs["shift"] = pairs["loss_end"] - pairs["loss_of_baseline"]
    common = pairs.groupby(KEY)["shift"].agg(lambda shifts: shifts.mean())
    cells = cells.join(common[pairs.groupby(KEY).size() >= FEWEST].rename("loss_shift"), on=KEY)
    shift = cells["loss_shift"].astype(float).where(seeds.notna())
    departs = (shift.abs() > seeds).astype("boolean").where(shift.notna())
    seeds = seeds.where(shift.notna() | (cells["cell"] == cells["baseline"]))
    found = cells[KEY].assign(loss_shift=shift, loss_seeds=seeds, loss_departs=departs)
    return found.set_index(KEY)


def trained_samples(runs: pd.DataFrame) -> pd.Series:
    """Samples that each run trained on, warm-up included."""
    steps = runs["steps"] + runs["warmup_steps"]
    per_step = runs["batch_size"] * runs["gradient_accumulation"] * runs["world_size"]
    return steps * per_step
