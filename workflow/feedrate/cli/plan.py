"""`python -m feedrate plan`: what would run where, for how long and at what cost."""

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from rich.table import Table

from feedrate.cli.display import output, table
from feedrate.cli.run import check_call, run_snakemake
from feedrate.config.plan import protocols
from feedrate.config.project import load_project
from feedrate.core import paths, variables
from feedrate.devices import host
from feedrate.flow.forecast import HERE, DryRun, Forecast, Job, Jobs, Runs, forecast, read
from feedrate.flow.runs import START_S, Basis
from feedrate.flow.view import PlanView
from feedrate.report.text import counted
from feedrate.results.certificate import read_certificates, shortfalls

IN_COLUMNS = ("cpus_per_task", "mem_mb", "runtime")
"""Resources with their own columns."""
HIDDEN = ("mem", "mem_mib", "disk", "disk_mb", "disk_mib", "tasks_per_gpu")
"""Resources not shown: the same in other units, unknown to Slurm, or used by Snakemake only."""
BASES: dict[Basis | None, tuple[str, str]] = {
    "cell": ("earlier runs", ""),
    "study": ("similar runs", "earlier runs of other cells on the same device"),
    "published": ("published rates", ""),
    "lowest": ("lowest rate", "the device's lowest published rate, because no source has the cell"),
    "scaled": ("scaled rates", "published rates of another number of these devices"),
    None: ("nothing", "there is no earlier run and no published rate"),
}
"""The basis of an estimate: its name in the table, and an explanation if it needs one."""


def plan(options: argparse.Namespace, others: Sequence[str]) -> int:
    """Print the plan; return the exit code."""
    check_call(options, others)
    # A profile's `quiet` could hide the jobs, so it is overridden.
    words = (*others, "--dry-run", "--logger", "feedrate", "--quiet", "host")
    with tempfile.TemporaryDirectory(prefix="feedrate-plan-") as folder:
        environment = {variables.PLAN: folder}
        if code := run_snakemake(options, *words, held_back=True, environment=environment):
            return code
        planned = read(Path(folder))
    project = load_project(Path(), planned.config, host.machine)
    made = PlanView(project, Path()).plan
    show(forecast(project, made, planned))
    cores = _cores_of_jobs(project.config.devices, planned)
    for line in shortfalls(made.runs.values(), cores, read_certificates(Path())):
        output().print(line)
    if project.config.repeats == "auto":
        auto = project.config.auto_repeats
        numbers = {str(p.repeats) for of in protocols(project).values() for p in of.values()}
        output().print(
            f"Planned repeats per cell: {', '.join(sorted(numbers))}. While a decision is open, "
            f"repeats are added one at a time: up to {auto.most} per cell, planned ones included, "
            f"and {auto.hours:g} hours in total (repeats: auto)."
        )
    return 0


def _cores_of_jobs(devices: Iterable[str], planned: DryRun) -> dict[str, int]:
    """The cores of a training job by device: those that it requests, or those of this host."""
    rules = {paths.rule_of(paths.TRAIN_RULE, device): device for device in devices}
    return {
        rules[job.rule]: host.cores_granted() if planned.runs_here(job) else _cores(job)
        for job in planned.jobs
        if job.rule in rules
    }


def show(forecast: Forecast) -> None:
    """Print a forecast to stdout."""
    console = output()
    for study, groups in groupby(forecast.runs, key=attrgetter("study")):
        console.print(_runs_table(study, list(groups)))
        console.print()
    jobs = [row for row in forecast.jobs if row.rule != "all"]
    if not jobs:
        console.print("Nothing to do.")
        return
    console.print(_jobs_table(jobs))
    console.print()
    for line in (*_places(forecast, jobs), *_training(forecast)):
        console.print(line)


def _runs_table(study: str, groups: Sequence[Runs]) -> Table:
    priced = any(group.cost_usd is not None for group in groups)
    columns = ["device", "cells", "unsupported", "done", "to do", "device-hours"]
    columns += [*["cost"] * priced, "estimated from"]
    rows = []
    for group in groups:
        counts = (group.cells, group.unsupported_cells, group.done, group.to_do)
        cost = [_cost(group)] * priced
        rows.append([group.device, *map(str, counts), _hours(group), *cost, _basis(group)])
    return table(f"Runs of {study}", columns, rows, left=("device",), wrapped=("estimated from",))


def _hours(group: Runs) -> str:
    if group.to_do == group.unknown:
        return "unknown" if group.to_do else "0"
    more = f" + {group.unknown} unknown" if group.unknown else ""
    return f"{group.device_hours:.1f}{more}"


def _cost(group: Runs) -> str:
    if group.cost_usd is None:
        return "no price"
    return "unknown" if group.to_do == group.unknown > 0 else f"{group.cost_usd:.2f} USD"


def _basis(group: Runs) -> str:
    """The bases of a group's estimates, with the number of runs of each if there are several."""
    found = {word: group.bases[basis] for basis, (word, _) in BASES.items() if group.bases[basis]}
    return ", ".join(f"{word} ({n})" if len(found) > 1 else word for word, n in found.items())


def _jobs_table(jobs: Iterable[Jobs]) -> Table:
    """A row for each kind of job; empty columns are left out."""
    rows = []
    for job in jobs:
        resources = dict(job.resources)
        memory_mb, minutes = resources.get("mem_mb"), resources.get("runtime")
        requests = (
            str(value) if name == "slurm_extra" else f"{name}={value}"
            for name, value in job.resources
            if name not in (*IN_COLUMNS, *HIDDEN) and value != ""
        )
        rows.append(
            {
                "rule": job.rule,
                "where": job.place,
                "jobs": str(job.count),
                "cores": str(_cores(job)),
                "memory": _unless_text(memory_mb, lambda mb: f"{mb / 1024:.0f} GiB"),
                "time limit": _unless_text(minutes, lambda n: duration(n * 60)),
                "requests": ", ".join(requests),
            }
        )
    shown = [name for name in rows[0] if any(row[name] for row in rows)]
    filled = ([row[name] for name in shown] for row in rows)
    return table("Jobs", shown, filled, left=("rule", "where"), wrapped=("requests",))


def _unless_text(value: int | str | None, words: Callable[[int], str]) -> str:
    """The `words` for a number; any other value, such as Snakemake's `<TBD>`, unchanged."""
    return words(value) if isinstance(value, int) else str(value or "")


def _cores(job: Job | Jobs) -> int:
    return int(dict(job.resources).get("cpus_per_task", job.threads))


def _places(forecast: Forecast, jobs: Iterable[Jobs]) -> Iterator[str]:
    """On a cluster, how many jobs go where, and which rules the profile does not place."""
    if not forecast.on_cluster:
        return
    places: Counter[str] = Counter()
    for job in jobs:
        places["here" if job.place == HERE else f"to {job.place}"] += job.count
    yield f"Jobs: {', '.join(f'{number} {place}' for place, number in places.most_common())}."
    for job in forecast.unplaced:
        yield (
            f"{job.rule} is not among the profile's set-resources: its jobs go to {job.place}, "
            f"with {counted(_cores(job), 'core')}."
        )


def _training(forecast: Forecast) -> Iterator[str]:
    """Time and cost of all training jobs, and the bases of the estimates."""
    groups = [group for group in forecast.runs if group.to_do]
    unknown = sum(group.unknown for group in groups)
    if not groups:
        yield "There are no training jobs to run."
        return
    if unknown == sum(group.to_do for group in groups):
        yield "The duration is not known: there are no earlier runs and no published rates."
        return
    hours = sum(group.device_hours for group in groups)
    per_device = " on each device" if forecast.on_cluster else ""
    more = f", and {counted(unknown, 'run')} of unknown length" if unknown else ""
    yield (
        f"Training: {hours:.1f} device-hours, about {duration(forecast.wall_s)} with one job at a "
        f"time{per_device}{more}."
    )
    yield _total_cost(groups)
    bases = {basis for group in groups for basis, number in group.bases.items() if number}
    for basis, (word, meaning) in BASES.items():
        if meaning and basis in bases:
            yield f"Estimated from {word}: {meaning}."
    if bases - {"cell", "study", None}:
        yield (
            f"Estimates from published rates include {duration(START_S)} for a job's start, and "
            "the time to measure its ceilings."
        )
    yield "Time in queues and time for data, parsing, tables and figures are not included."


def _total_cost(groups: Iterable[Runs]) -> str:
    priced = [group for group in groups if group.cost_usd is not None]
    if not priced:
        return "Cost: not known; set prices with `price_usd_per_hour` in config/devices.yaml."
    missing = dict.fromkeys(group.device for group in groups if group.cost_usd is None)
    if any(group.unknown for group in priced):
        missing["runs of unknown length"] = None
    without = f", without {', '.join(missing)}" if missing else ""
    total = sum(group.cost_usd or 0.0 for group in priced)
    return f"Cost: {total:.2f} USD at the prices in config/devices.yaml{without}."


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return " ".join(f"{n} {unit}" for n, unit in ((hours, "h"), (minutes, "min")) if n)
