"""Makes the tables of a study from the documents of its runs: results.csv and results.parquet have
a row per run, cells.csv a row per cell, answers.csv a row per device and level of what is given."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from pathlib import Path
from statistics import fmean, median
from typing import Any

from msgspec.structs import replace

from feedrate.config.spec import RunSpec
from feedrate.config.study import Thresholds
from feedrate.config.values import cell_name
from feedrate.results.answers import Group, GroupKey, answer_rows, group_key, groups_of
from feedrate.results.assemble import parse_logs
from feedrate.results.conformity import DISTURBED
from feedrate.results.files import (
    FILES,
    RUNS,
    Row,
    for_studies,
    read_csv,
    with_levels,
    write_table,
)
from feedrate.results.limits import limit_of
from feedrate.results.parts import PARTS, of_known, over_runs
from feedrate.results.record import Record, RecordError, read_records
from feedrate.results.schema import STATUSES, VALUES
from feedrate.results.statistics import Noise, Noises, median_interval, noise_by_device, spread
from feedrate.results.study_plan import StudyPlan, read_plan

Key = tuple[str, str, str]
KEY = ("study", "device", "cell")  # the columns that identify a cell
OVER_REPEATS: dict[str, Callable[[Any], Any]] = {"median": median, "largest": max, "smallest": min}
"""How the known values of a cell's ok runs combine, by the schema's word."""
FEWEST = 2  # number of repeats that a range over seeds needs at least


def collect_results(plan: Path, results: Path) -> None:
    """Collect the study's records into tables of its runs, cells and answers: results.csv,
    results.parquet, cells.csv and answers.csv."""
    study, records = read_plan(plan), list[Record]()
    for device in dict.fromkeys(run.device for run in study.runs):
        try:
            records += read_records(results, device)
        except RecordError:  # the file is damaged: runs are what counts
            parse_logs(plan, device, results)
            records += read_records(results, device)
    runs = run_table(records, study)
    groups = groups_of(runs, study.study)
    cells = cell_rows(runs, study, groups)
    answers = answer_rows(cells, groups.values())
    for name, rows in (("results.csv", runs), ("cells.csv", cells), ("answers.csv", answers)):
        write_table(results, name, for_studies(FILES[name], study.project.studies), rows)


def merge_results(studies: Sequence[Path], out: Path) -> None:
    """Merge the result files in the folders of all studies, each kind into a file of its name in
    the folder `out`."""
    for name in ("results.csv", "cells.csv", "answers.csv", "claims.csv"):
        rows = [row for study in studies for row in read_csv(study / name, FILES[name])]
        write_table(out, name, with_levels(FILES[name], rows), rows)


def run_table(records: Sequence[Record], plan: StudyPlan) -> list[Row]:
    """A row for each record and each unsupported cell, with the columns of results.csv, in the
    order of the configuration. A cell that shares another's runs has a copy of its rows."""
    measured = [_run_row(record) for record in reject_mixed_specs(records)]
    rows = list(measured)
    for cell in plan.unsupported:  # it was never launched
        row: Row = {"study": cell.study, "device": cell.device, "cell": cell.cell, "repeat": 1}
        cause = cell.install or f"Not tried: it needs {cell.lacks.replace('_', ' ')}."
        rows.append(row | {"status": "unsupported", "cause": cause, **cell.levels})
    for shared in plan.shared:
        own = {"cell": shared.cell, "measured_as": shared.measured_as, **shared.levels}
        for row in measured:
            if (row["device"], row["cell"]) == (shared.device, shared.measured_as):
                rows.append(row | own)
    orders: dict[str, list[Any]] = {"device": plan.measured}
    orders |= {name: factor.levels for name, factor in plan.study.factors.items()}

    def position(row: Row) -> list[int]:
        positions = []
        for name, order in orders.items():
            value = row.get(name)
            positions.append(order.index(value) if value in order else len(order))
        return [*positions, row["repeat"]]

    names = [column.name for column in for_studies(RUNS, plan.project.studies)]
    table = []
    for row in sorted(rows, key=position):
        row["site"] = plan.project.sites.get(row["device"], "")
        table.append({name: row.get(name) for name in names})
    return table


def reject_mixed_specs(records: Collection[Record]) -> Iterator[Record]:
    """The same records; an ok run is invalid if its spec differs in more than repeat and seed from
    the spec of its cell's first ok run: no median describes both."""
    first: dict[Key, tuple[int, RunSpec]] = {}
    for record in sorted(records, key=attrgetter("repeat")):
        if record.status == "ok" and record.spec:
            key = record.study, record.device, record.cell
            first.setdefault(key, (record.repeat, record.spec.of_cell))
    for record in records:
        if record.status == "ok" and record.spec:
            repeat, spec = first[record.study, record.device, record.cell]
            if record.spec.of_cell != spec:
                cause = f"Made with other settings than repeat {repeat}."
                record = replace(record, status="invalid", cause=cause)
        yield record


def _run_row(record: Record) -> Row:
    """The row of a record; unknown fields are left out. The numbers of an invalid run stay in it:
    its status excludes them from everything else."""
    failed = [check.name for check in record.checks if not check.passed]
    row: Row = {
        "model_parameters": record.model_parameters,
        "model_size_gib": record.model_parameters and record.model_parameters * 4 / 2**30,
        "flops_per_sample": record.flops_per_sample,
        "library": record.trainer.library,
        "failed_checks": ";".join(failed),
        "provisional": record.status == "invalid" and bool(failed) and DISTURBED.issuperset(failed),
        "disturbed": " ".join(record.disturbances),
    }
    for name in (*KEY, "repeat", "status", "cause", "folder"):
        row[name] = getattr(record, name)
    for value in VALUES.values():
        part = getattr(record, value.part)
        if part:
            measured = getattr(part, value.field)
            row[value.column] = ";".join(measured) if isinstance(measured, list) else measured
    if record.spec:
        row |= _settings(record.spec, record.provenance.cores_granted)
        steps = row.get("steps_per_epoch")
        row["short_epochs"] = steps is not None and steps < record.spec.full_epoch_steps
    return row | record.levels


def _settings(spec: RunSpec, cores: int | None) -> Row:
    """The columns of a run's row that its spec gives; `cores` is the number of granted cores."""
    train, loader, model = spec.settings.train, spec.settings.loader, spec.settings.model
    # A device that decodes loads with threads, which wait for files.
    processes = 0 if loader.decode == "device" else loader.workers * (spec.count // spec.nodes)
    # Only the first version of FSDP can limit its all-gathers.
    fsdp = "fsdp2" if train.limit_all_gathers is None else "fsdp1"
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
        "decodes_on_device": loader.decode == "device",
        "oversubscribed": processes > (cores or processes),
        "keeps_last_batch": loader.last_batch != "drop",
        "model": model.label,
        "losses": model.losses or "own",
        "checkpoint": model.checkpoint or "none",
        "dataset": spec.dataset,
    }


def cell_rows(
    runs: Sequence[Row], plan: StudyPlan, groups: Mapping[GroupKey, Group] | None = None
) -> list[Row]:
    """A row for each cell of `run_table`; without `groups`, they are made from the runs."""
    study, noise = plan.study, noise_by_device(runs)
    groups = groups_of(runs, study) if groups is None else groups
    part_noise = {
        part: noise_by_device(runs, itemgetter(f"{part}_ratio"), lambda _: None) for part in PARTS
    }
    runs_of: dict[Key, list[Row]] = {}
    for run in runs:
        runs_of.setdefault((run["study"], run["device"], run["cell"]), []).append(run)
    cells = {key: _combine(own, part_noise) for key, own in runs_of.items()}
    cells_of: dict[Key, list[Row]] = {}  # by their baseline
    for (name, device, _), cell in cells.items():
        entry = plan.project.devices[device]
        if entry.price_usd_per_hour is not None and cell["samples_per_s"]:
            price_usd_per_s = entry.price_usd_per_hour / 3600
            cell["usd_per_million_samples"] = price_usd_per_s / cell["samples_per_s"] * 1e6
        baseline = name, device, cell_name(study.baseline_of(cell))
        cells_of.setdefault(baseline, []).append(cell)
        group = groups.get(group_key(cell, study))
        _add_intervals(cell, group, study.thresholds, noise.get((name, device)))
        others = group.faster(cell["cell"]) if group else []
        luck = group.luck if group and cell["use"] else 0.0
        limit = limit_of(cell, study.thresholds, entry.memory_gib, others, luck)
        cell["limit"], cell["gain_low"], cell["gain_high"] = limit
    for baseline, own in cells_of.items():
        add_losses(own, baseline, runs_of)
    return list(cells.values())


def _combine(runs: Sequence[Row], part_noise: Mapping[str, Noises]) -> Row:
    """The row of a cell with these runs. Columns that are not combined have the values of the first
    run whose spec could be read. The cause is from the first run with the cell's status; if only
    some runs are ok, from the first run that is not."""
    first = next((run for run in runs if run["world_size"] is not None), runs[0])
    counts = {status: [run["status"] for run in runs].count(status) for status in STATUSES}
    status = next(status for status in STATUSES if counts[status])
    ok = [run for run in runs if run["status"] == "ok"]
    others = [run for run in runs if run["status"] != "ok"]
    if not ok:
        others = [run for run in runs if run["status"] == status]
    cell = first | {f"{name}_runs": counts[name] for name in STATUSES if name != "unsupported"}
    provisional = [run["samples_per_s"] for run in runs if run["provisional"] and not ok]
    cell |= {
        "status": status,
        "provisional_samples_per_s": of_known(median, provisional),
        "cause": next((run["cause"] for run in others or ok if run["cause"]), ""),
        "runs": len(runs) - counts["unsupported"],
        "disturbed": max((run["disturbed"] for run in ok), default=""),
        "short_epochs": any(run["short_epochs"] for run in ok) if ok else None,
        "usd_per_million_samples": None,
    }
    for value in VALUES.values():
        values = [run[value.column] for run in ok]
        if value.repeats == "same":
            cell[value.column] = values[0] if len(set(values)) == 1 else None
        elif value.repeats in OVER_REPEATS:
            cell[value.column] = of_known(OVER_REPEATS[value.repeats], values)
    for part in PARTS:
        cell |= over_runs(ok, part, part_noise[part].get((cell["study"], cell["device"])))
    return cell


def _add_intervals(
    cell: Row, group: Group | None, thresholds: Thresholds, noise: Noise | None
) -> None:
    """Add interval, spread and speed-up to the row of a cell, and whether it is the one to use."""
    speedup = "speedup", "speedup_ci_low", "speedup_ci_high"
    cell |= dict.fromkeys(("ci_low", "ci_high", *speedup))
    rates = group.rates(cell["cell"]) if group else []
    if group and rates:
        _, cell["ci_low"], cell["ci_high"] = median_interval(rates, thresholds.confidence, noise)
        if group.rates(group.baseline):
            cell |= zip(speedup, group.ratio(cell["cell"], group.baseline), strict=True)
    cell["use"] = bool(group and group.use == cell["cell"])
    cell["spread"] = spread(rates)
    cell["noisy"] = (cell["spread"] or 0.0) > thresholds.noise_share or cell["disturbed"] != ""


def add_losses(cells: Sequence[Row], baseline: Key, runs: Mapping[Key, Sequence[Row]]) -> None:
    """Add the difference of each cell's final loss from their baseline's; None where unknown.
    `runs` has the runs of cells by KEY. Repeats with the same number share a seed, and so see the
    same samples in the same order. The effect of seeds is the baseline's range or, where larger,
    the median range of the cells that are compared with it: two seeds may agree by chance."""
    of_baseline = _trained(runs.get(baseline, ()))
    seeds, ranges, pairs_of = _range(of_baseline), [], {}
    for cell in cells:
        own, name = _trained(runs[cell["study"], cell["device"], cell["cell"]]), cell["cell"]
        pairs_of[name] = [(own[key], of_baseline[key]) for key in own if key in of_baseline]
        if pairs_of[name] or name == baseline[-1]:
            ranges.append(_range(own))
    if seeds is not None:
        seeds = max(seeds, of_known(median, ranges))
    for cell in cells:
        cell |= dict.fromkeys(("loss_shift", "loss_seeds", "loss_departs", "loss_identical"))
        pairs = pairs_of[cell["cell"]]
        if cell["cell"] == baseline[-1]:
            cell["loss_seeds"] = seeds
        elif seeds is not None and len(pairs) >= FEWEST:
            shift = fmean(run["loss_end"] - other["loss_end"] for run, other in pairs)
            digests = [(run["loss_digest"], other["loss_digest"]) for run, other in pairs]
            is_identical = all(digest == other != "" for digest, other in digests)
            cell |= {"loss_shift": shift, "loss_seeds": seeds}
            cell |= {"loss_departs": abs(shift) > seeds, "loss_identical": is_identical}


def _trained(runs: Sequence[Row]) -> dict[tuple[Any, ...], Row]:
    """The ok runs with a final loss, by a key that runs share which can be compared. Runs that keep
    an epoch's smaller last batch saw an unknown number of samples."""
    trained = {}
    for run in runs:
        if run["status"] == "ok" and run["loss_end"] is not None and not run["keeps_last_batch"]:
            steps = run["steps"] + run["warmup_steps"]
            samples = steps * run["batch_size"] * run["gradient_accumulation"] * run["world_size"]
            trained[run["repeat"], samples, run["losses"], run["model"]] = run
    return trained


def _range(runs: Mapping[tuple[Any, ...], Row]) -> float | None:
    """The range of final losses; None for fewer than two runs."""
    losses = [run["loss_end"] for run in runs.values()]
    return max(losses) - min(losses) if len(losses) >= FEWEST else None
