"""Makes the tables of a study from the documents of its runs: results.csv and results.parquet have
a row per run, cells.csv a row per cell."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import pandas as pd
from msgspec.structs import replace

from feedrate.config.plan import Unsupported
from feedrate.config.spec import RunSpec
from feedrate.config.study import Study
from feedrate.config.values import cell_name
from feedrate.results.assemble import parse_logs
from feedrate.results.columns import CELLS, FILES, RUNS, for_studies, with_factors
from feedrate.results.files import Row, frame_of, read_csv, rows_of, write_csv, write_parquet
from feedrate.results.parts import PARTS, names_of, over_runs
from feedrate.results.recommendation import OK_RATES, recommend
from feedrate.results.record import Record, RecordError, read_records
from feedrate.results.schema import STATUSES, VALUES
from feedrate.results.statistics import (
    Noises,
    median_interval,
    noise_by_device,
    ratio_interval,
    spread,
)
from feedrate.results.study_plan import StudyPlan, read_plan
from feedrate.results.verdicts import below_rate, cell_verdict, faster_cells

MEASURED = [VALUES[column.name] for column in RUNS if column.name in VALUES]
"""The measured values in a row of results.csv."""
KEY = ["study", "device", "cell"]
BASELINE = ["study", "device", "baseline"]
"""The columns that identify a cell, and its baseline."""
OVER_REPEATS: dict[str, Any] = {
    "median": "median",
    "largest": "max",
    "smallest": "min",
    "pooled": "median",  # until `add_parts`
    "same": lambda values: values.iloc[0] if values.nunique(dropna=False) == 1 else None,
}
"""How the values of a cell's ok runs combine: the aggregation in pandas by the schema's word."""
COMBINED = {c.name: VALUES[c.name].repeats for c in CELLS if c.name in VALUES}
PART_COLUMNS = ["rounds", *(name for part in PARTS for name in names_of(part))]
INTERVALS = ("ci_low", "ci_high", "spread", "speedup", "speedup_ci_low", "speedup_ci_high")
FEWEST = 2
"""Number of repeats that a range over seeds needs at least."""


def collect_results(plan: Path, results: Path) -> None:
    """Collect the study's records into tables of its runs and cells: results.csv, results.parquet
    and cells.csv."""
    study, records = read_plan(plan), list[Record]()
    for device in dict.fromkeys(run.device for run in study.runs):
        try:
            records += read_records(results, device)
        except RecordError:  # the file is damaged: runs are what counts
            parse_logs(plan, device, results)
            records += read_records(results, device)
    runs = run_table(records, study)
    columns = for_studies(RUNS, study.project.studies)
    write_csv(results / "results.csv", columns, rows_of(runs))
    write_parquet(results / "results.parquet", columns, runs)
    columns = for_studies(CELLS, study.project.studies)
    write_csv(results / "cells.csv", columns, cell_rows(runs, study))


def merge_results(studies: Sequence[Path], out: Path) -> None:
    """Merge the result files in the folders of all studies, each kind into a file of its name in
    the folder `out`."""
    for name in ("results.csv", "cells.csv", "claims.csv"):
        known = FILES[name]
        tables = [pd.DataFrame(read_csv(one / name, known), dtype=object) for one in studies]
        table = pd.concat(tables, ignore_index=True)
        factors = table.columns.drop([column.name for column in known], errors="ignore")
        columns = with_factors(known, {factor: table[factor].dropna() for factor in factors})
        rows = rows_of(table)
        write_csv(out / name, columns, rows)
        if name == "results.csv":
            write_parquet(out / "results.parquet", columns, frame_of(rows, columns))


def run_table(records: Sequence[Record], plan: StudyPlan) -> pd.DataFrame:
    """A row for each record and each unsupported cell, with the columns of results.csv, in the
    order of the configuration. A cell that shares another's runs has a copy of its rows."""
    measured = list(map(_run_row, of_one_spec(records)))
    rows = measured + [unsupported_row(cell) for cell in plan.unsupported]
    for one in plan.shared:
        key = [one.study, one.device, one.measured_as]
        own = {"cell": one.cell, "measured_as": one.measured_as, **one.levels}
        rows += [row | own for row in measured if [row[name] for name in KEY] == key]
    rows = [{**row, "site": plan.project.sites.get(row["device"], "")} for row in rows]
    orders: dict[str, list[Any]] = {"device": plan.measured}
    orders |= {name: factor.levels for name, factor in plan.study.factors.items()}

    def place(row: Row) -> list[int]:
        values = [(row.get(name), order) for name, order in orders.items()]
        places = [order.index(value) if value in order else len(order) for value, order in values]
        return [*places, row["repeat"]]

    return frame_of(sorted(rows, key=place), for_studies(RUNS, plan.project.studies))


def of_one_spec(records: Collection[Record]) -> Iterator[Record]:
    """The same records; an ok run is invalid if its spec differs in more than repeat and seed from
    that of its cell's first ok run: no median describes both."""
    first: dict[tuple[str, ...], tuple[int, RunSpec]] = {}
    cell_of = attrgetter(*KEY)
    for record in sorted(records, key=attrgetter("repeat")):
        if record.status == "ok" and record.spec:
            first.setdefault(cell_of(record), (record.repeat, record.spec.of_cell))
    for record in records:
        repeat, spec = first.get(cell_of(record), (0, None))
        if record.status != "ok" or not record.spec or record.spec.of_cell == spec:
            yield record
        else:
            cause = f"Made with other settings than repeat {repeat}."
            yield replace(record, status="invalid", cause=cause)


def _run_row(record: Record) -> Row:
    """The row of a record; unknown fields are left out. The numbers of an invalid run stay in it:
    its status excludes them from everything else."""
    row: Row = {
        **{n: getattr(record, n) for n in ("study", "device", "cell", "repeat", "status", "cause")},
        "model_parameters": record.model_parameters,
        "model_size_gib": record.model_parameters and record.model_parameters * 4 / 2**30,
        "flops_per_sample": record.flops_per_sample,
        "library": record.trainer.library,
        "failed_checks": ";".join(check.name for check in record.checks if not check.passed),
        "disturbed": " ".join(record.disturbances),
        "folder": record.folder,
    }
    for value in MEASURED:
        if part := getattr(record, value.part):
            found = getattr(part, value.field)
            row[value.column] = ";".join(found) if isinstance(found, list) else found
    if record.spec:
        row |= _settings(record.spec, record.provenance.cores_granted)
        steps = row.get("steps_per_epoch")
        row["short_epochs"] = steps is not None and steps < record.spec.full_epoch_steps
    return row | record.levels


def _settings(spec: RunSpec, cores: int | None) -> Row:
    train, loader, model = spec.settings.train, spec.settings.loader, spec.settings.model
    # A device that decodes loads with threads, which wait for files.
    on_device = loader.decode == "device"
    # Only the first version of FSDP can limit its all-gathers.
    fsdp = "fsdp2" if train.limit_all_gathers is None else "fsdp1"
    loading = 0 if on_device else loader.workers * (spec.count // spec.nodes)
    return {
        "task": spec.task,
        "device_kind": spec.kind,
        "batch_size": train.batch_size,
        "gradient_accumulation": train.gradient_accumulation,
        "precision": train.precision,
        "parallelism": fsdp if train.strategy == "fsdp" else train.strategy,
        "world_size": spec.count,
        "nodes": spec.nodes,
        "loader_workers": loader.workers,
        "decodes_on_device": on_device,
        "oversubscribed": loading > (cores or loading),
        "keeps_last_batch": loader.last_batch != "drop",
        "model": model.label,
        "losses": model.losses or "own",
        "checkpoint": model.checkpoint or "none",
        "dataset": spec.dataset,
    }


def unsupported_row(cell: Unsupported) -> Row:
    """The one row of a cell that was never launched."""
    return {
        **{name: getattr(cell, name) for name in KEY},
        "repeat": 1,
        "status": "unsupported",
        "cause": cell.install or f"{cell.device} lacks the capability {cell.lacks}.",
        **cell.levels,
    }


def cell_rows(runs: pd.DataFrame, plan: StudyPlan) -> list[Row]:
    """A row for each cell of `run_table`, with its verdict and a recommendation per device."""
    study, noise = plan.study, noise_by_device(rows_of(runs))
    cells = rows_of(combine(runs, plan).reset_index())
    add_intervals(cells, study, noise)
    for cell in cells:
        cell["below_rate"] = below_rate(cell, faster_cells(cell, cells, study, noise))
        memory_gib = plan.project.devices[cell["device"]].memory_gib
        verdict = cell_verdict(cell, study.thresholds, memory_gib)
        cell |= {"verdict": verdict.name, "why": verdict.why}
    recommend(cells, study, noise)
    return cells


def combine(runs: pd.DataFrame, plan: StudyPlan) -> pd.DataFrame:
    """The cells of a study by KEY, in the order in which they first appear among `runs`. Columns
    not combined over the repeats have the values of the first run whose spec could be read;
    OK_RATES has all ok runs'."""
    order = pd.MultiIndex.from_frame(runs[KEY].drop_duplicates())
    known_first = runs.sort_values("world_size", key=pd.Series.isna, kind="stable")
    cells = known_first.drop_duplicates(KEY).set_index(KEY).loc[order]
    states = outcomes(runs)
    # Rows in the cells' order first: or pandas orders each column by itself.
    cells[states.columns] = states.reindex(cells.index)
    ok = runs[runs["status"] == "ok"].groupby(KEY)
    for word, function in OVER_REPEATS.items():
        names = [name for name, how in COMBINED.items() if how == word]
        cells[names] = ok[names].agg(function).reindex(cells.index)
    add_parts(cells, ok)
    cells = cells.copy()  # in few blocks again
    names = [cell_name(plan.study.baseline_of(row)) for row in rows_of(cells)]
    baselines = pd.Series(names, cells.index, dtype=object)
    cells[OK_RATES] = ok["samples_per_s"].agg(list)
    cells["disturbed"] = ok["disturbed"].max().reindex(cells.index).fillna("")
    cells["short_epochs"] = ok["short_epochs"].any()
    prices = {name: device.price_usd_per_hour for name, device in plan.project.devices.items()}
    usd_per_hour = cells.index.get_level_values("device").map(prices.get)
    usd_per_s = usd_per_hour.astype(float) / 3600
    cells["usd_per_million_samples"] = usd_per_s / cells["samples_per_s"] * 1e6
    return cells.join(loss_shifts(runs, baselines))


def add_parts(cells: pd.DataFrame, ok: Any) -> None:
    """Add the ratios of the parts alone to training; `ok` are the ok runs by KEY. Cells of a study
    on a device share the noise between runs."""
    rows = rows_of(ok.obj[[*KEY, "status", "measured_as", *PART_COLUMNS]])
    noises = {part: noise_by_device(rows, f"{part}_ratio", floor="") for part in PARTS}
    ratios: dict[Any, Row] = {}
    for key, of_cell in ok[PART_COLUMNS]:
        ratios[key] = {}
        for part, noise in noises.items():
            ratios[key] |= over_runs(rows_of(of_cell), part, noise.get(key[:2]))
    if ratios:
        added = pd.DataFrame(ratios.values(), pd.MultiIndex.from_tuples(ratios, names=KEY))
        cells[added.columns] = added.reindex(cells.index)


def add_intervals(cells: Sequence[Row], study: Study, noise: Noises) -> None:
    """Add intervals, spread and speed-up to the rows of a study. The intervals of the speed-ups
    over one baseline hold together: there are as many comparisons as other cells with own runs."""
    lines = study.thresholds
    known = {(cell["device"], cell["cell"]): cell[OK_RATES] for cell in cells}
    bases = [(cell["device"], cell_name(study.baseline_of(cell))) for cell in cells]
    own = zip(bases, cells, strict=True)
    among = Counter(base for base, c in own if c[OK_RATES] and not c["measured_as"])
    for cell, base in zip(cells, bases, strict=True):
        rates, baseline = cell[OK_RATES], known.get(base)
        options = lines.confidence, noise.get((cell["study"], cell["device"]))
        interval = median_interval(rates, *options)[1:] if rates else (None, None)
        speedup: Sequence[float | None] = (None, None, None)
        if rates and cell["cell"] == base[1]:
            speedup = (1.0, 1.0, 1.0)
        elif rates and baseline:
            speedup = ratio_interval(rates, baseline, *options, among[base] - 1)
        values = (*interval, spread(rates or []), *speedup)
        cell |= dict(zip(INTERVALS, values, strict=True))
        cell["noisy"] = (cell["spread"] or 0.0) > lines.noise_share or cell["disturbed"] != ""


def outcomes(runs: pd.DataFrame) -> pd.DataFrame:
    """Status, cause and numbers of runs of each cell, by KEY. The cause is that of the first run
    with the cell's status; if only some runs are ok, that of the first run that is not."""
    counts = pd.crosstab([runs[name] for name in KEY], runs["status"])
    counts = counts.reindex(columns=list(STATUSES), fill_value=0)
    cells = counts.drop(columns="unsupported").add_suffix("_runs")
    cells["runs"] = cells.sum(axis="columns")
    cells["status"] = counts.gt(0).idxmax(axis="columns")
    cells["partly"] = cells["ok_runs"].between(1, cells["runs"] - 1)
    of_cell = cells.reindex(pd.MultiIndex.from_frame(runs[KEY])).set_index(runs.index)
    tells = (runs["status"] == of_cell["status"]) != of_cell["partly"]
    causes = runs[tells & (runs["cause"] != "")].drop_duplicates(KEY).set_index(KEY)
    cells["cause"] = causes["cause"]
    return cells.drop(columns="partly").fillna({"cause": ""})


def loss_shifts(runs: pd.DataFrame, baselines: pd.Series) -> pd.DataFrame:
    """The difference of each cell's final loss from that of its baseline; missing where unknown.
    `baselines` has the names of the baseline cells by KEY, the index of the result too.

    `loss_shift` is the mean difference over common repeats, which share a seed and so see the same
    samples in the same order. `loss_seeds` is the effect of seeds: the range of the baseline's
    repeats or, where that is larger, the median range of the cells that are compared with it; so
    two seeds that happen to agree flag no cell. `loss_departs` says whether the shift is larger. A
    shift needs two common repeats of equal length. Cells that keep an epoch's smaller last
    batch see an unknown number of samples and are not compared, nor are cells that train another
    model or other losses. `loss_identical`: all losses of all common repeats are equal bit by bit,
    because the batches are."""
    known = (runs["status"] == "ok") & runs["loss_end"].notna()
    ends = runs[known & ~runs["keeps_last_batch"].fillna(False)]
    per_step = ends["batch_size"] * ends["gradient_accumulation"] * ends["world_size"]
    ends = ends.assign(trained=(ends["steps"] + ends["warmup_steps"]) * per_step)
    seen = ["repeat", "trained", "losses", "model"]
    ends = ends[[*KEY, *seen, "loss_end", "loss_digest"]]
    losses = ends.groupby(KEY)["loss_end"]
    ranges = (losses.max() - losses.min())[losses.size() >= FEWEST]
    cells = baselines.rename("baseline").reset_index()
    cells = cells.join(ranges.rename("range"), on=KEY)
    cells = cells.join(ranges.rename("range_of_baseline"), on=BASELINE)
    is_baseline = cells["cell"] == cells["baseline"]
    of_baseline = ends.set_axis([*BASELINE, *seen, "loss_of_baseline", "series"], axis=1)
    pairs = ends.merge(cells[~is_baseline]).merge(of_baseline)
    compared = pd.MultiIndex.from_frame(cells[KEY]).isin(pairs.set_index(KEY).index)
    cells["range"] = cells["range"].where(compared | is_baseline)
    typical = cells.groupby(BASELINE)["range"].transform("median")
    seeds = cells["range_of_baseline"].clip(lower=typical)
    pairs["shift"] = pairs["loss_end"] - pairs["loss_of_baseline"]
    # Not agg("mean"), which rounds differently from numpy's mean.
    shifts = pairs.groupby(KEY)["shift"].agg(lambda v: v.mean() if len(v) >= FEWEST else None)
    equal = (pairs["loss_digest"] == pairs["series"]) & (pairs["series"] != "")
    same = equal.groupby([pairs[name] for name in KEY]).all().rename("same")
    cells = cells.join(shifts, on=KEY).join(same, on=KEY)
    shift = cells["shift"].astype(float).where(seeds.notna())
    departs = (shift.abs() > seeds).astype("boolean").where(shift.notna())
    seeds = seeds.where(shift.notna() | is_baseline)
    identical = cells["same"].astype("boolean").where(shift.notna())
    table = cells[KEY].assign(loss_shift=shift, loss_seeds=seeds, loss_departs=departs)
    return table.assign(loss_identical=identical).set_index(KEY)
