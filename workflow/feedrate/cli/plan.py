"""`python -m feedrate plan`: what would run where, how long and at what cost; nothing starts."""

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from rich.console import JustifyMethod
from rich.table import Table

from feedrate.cli.console import output, titled
from feedrate.cli.snakemake import add_choices, check_options, config_arguments, run_snakemake
from feedrate.config.plan import load_project, make_plan
from feedrate.core import variables
from feedrate.devices import detect
from feedrate.flow import dry_run
from feedrate.flow.forecast import HERE, START_S, Basis, Forecast, Jobs, Runs, forecast


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    add_choices(parser)


def run(options: argparse.Namespace, others: list[str]) -> int:
    """Print the plan; return the exit code."""
    check_options(options, others)
    with tempfile.TemporaryDirectory(prefix="feedrate-plan-") as folder:
        code = run_snakemake(
            # A profile's `quiet` could hide the jobs, so it is overridden.
            [
                *("--profile", options.profile, *others, "--dry-run"),
                *("--logger", "feedrate", "--quiet", "host", *config_arguments(options)),
            ],
            held_back=True,
            environment={variables.PLAN: folder},
        )
        if code:
            return code
        said = dry_run.read(Path(folder))
    project = load_project(Path(), said.configuration.config, detect.machine)
    show(forecast(project, make_plan(project), said))
    return 0


# A forecast as tables on the terminal, and in sentences.

OF_ITSELF = ("all",)
"""Rules that do nothing."""
IN_COLUMNS = ("cpus_per_task", "mem_mb", "runtime")
"""Resources with columns of their own."""
UNSAID = ("mem", "mem_mib", "disk", "disk_mb", "disk_mib", "tasks_per_gpu")
"""Resources that Snakemake adds (the same in other units, what Slurm has no word for), or its
executor has to be told."""
BASES: dict[Basis | None, tuple[str, str]] = {
    "cell": ("earlier runs", ""),
    "study": ("similar runs", "earlier ones of other cells on the same device"),
    "published": ("published rates", ""),
    "lowest": (
        "lowest rate",
        "nobody published the cell, so the device's lowest published rate counts",
    ),
    "scaled": ("scaled rates", "those published for another number of these devices"),
    None: ("nothing", "there is no earlier run and no published rate to tell how long it takes"),
}
"""What an estimate rests on, in a word for the table, and explained where that needs it."""


def show(forecast: Forecast) -> None:
    """Print a forecast to stdout."""
    console = output()
    for study, groups in groupby(forecast.runs, key=attrgetter("study")):
        console.print(_runs_table(study, list(groups)))
        console.print()
    jobs = [row for row in forecast.jobs if row.rule not in OF_ITSELF]
    if not jobs:
        console.print("Nothing to do.")
        return
    console.print(_jobs_table(jobs))
    console.print()
    for line in (*_of_places(forecast, jobs), *_of_training(forecast)):
        console.print(line)


def _runs_table(study: str, groups: Sequence[Runs]) -> Table:
    priced = any(group.cost_usd is not None for group in groups)
    table = titled(f"Runs of {study}")
    table.add_column("device", no_wrap=True)
    for name in ("cells", "unsupported", "done", "to do", "device-hours"):
        table.add_column(name, justify="right", no_wrap=True)
    if priced:
        table.add_column("cost", justify="right", no_wrap=True)
    table.add_column("estimated from")
    for group in groups:
        counts = (group.cells, group.unsupported_cells, group.done, group.to_do)
        cost = [_cost(group)] if priced else []
        table.add_row(group.device, *map(str, counts), _hours(group), *cost, _bases(group))
    return table


def _jobs_table(jobs: Iterable[Jobs]) -> Table:
    """A row for each; columns in which nothing stands are left out."""
    rows = [
        {
            "rule": row.rule,
            "where": row.place,
            "jobs": str(row.count),
            "cores": str(_cores(row)),
            "memory": _memory(dict(row.resources).get("mem_mb")),
            "time limit": _minutes(dict(row.resources).get("runtime")),
            "asks for": _others(row),
        }
        for row in jobs
    ]
    table = titled("Jobs")
    shown = [name for name in rows[0] if any(row[name] for row in rows)]
    for name in shown:
        if name == "asks for":
            table.add_column(name, overflow="fold")
        else:
            justify: JustifyMethod = "left" if name in ("rule", "where") else "right"
            table.add_column(name, justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(*(row[name] for name in shown))
    return table


def _of_places(forecast: Forecast, jobs: Iterable[Jobs]) -> Iterable[str]:
    """How many jobs go where, and what the profile has forgotten."""
    if not forecast.on_cluster:
        return
    places: Counter[str] = Counter()
    for row in jobs:
        places[row.place] += row.count
    listed = (
        f"{n} here" if place == HERE else f"{n} to {place}" for place, n in places.most_common()
    )
    yield f"Jobs: {', '.join(listed)}."
    for row in forecast.unplaced:
        yield (
            f"{row.rule} is not among the profile's set-resources: its jobs go to {row.place}, "
            f"with {_counted(_cores(row), 'core')}."
        )


def _of_training(forecast: Forecast) -> Iterable[str]:
    """Sums over the training jobs, and what they rest on."""
    groups = [group for group in forecast.runs if group.to_do]
    unknown = sum(group.unknown for group in groups)
    if not groups:
        yield "No training job is to be run."
        return
    if unknown == sum(group.to_do for group in groups):
        yield "How long this takes is not known: there are no earlier runs and no published rates."
        return
    bases = Counter[Basis | None]()
    for group in groups:
        bases.update(group.bases)
    hours = sum(group.device_hours for group in groups)
    beside = " on each device" if forecast.on_cluster else ""
    without = f", and {_counted(unknown, 'run')} of unknown length" if unknown else ""
    yield (
        f"Training: {hours:.1f} device-hours, about {duration(forecast.wall_s)} with one job at a "
        f"time{beside}{without}."
    )
    yield _total_cost(groups)
    for basis, (word, meaning) in BASES.items():
        if meaning and bases[basis]:
            yield f"Estimated from {word}: {meaning}."
    if bases.keys() - {"cell", "study", None}:
        yield (
            f"To published rates, {duration(START_S)} are added for a job's start, and what its "
            "two ceilings take."
        )
    yield "Waiting in queues, data, parsing, tables and figures are not in these numbers."


def _total_cost(groups: Iterable[Runs]) -> str:
    priced = [group for group in groups if group.cost_usd is not None]
    if not priced:
        return "Cost: not known; prices are `price_usd_per_hour` in config/devices.yaml."
    unpriced = dict.fromkeys(group.device for group in groups if group.cost_usd is None)
    lacking = [*unpriced, *(["runs of unknown length"] if any(g.unknown for g in priced) else [])]
    without = f", without {', '.join(lacking)}" if lacking else ""
    total = sum(group.cost_usd or 0.0 for group in priced)
    return f"Cost: {total:.2f} USD by the prices in config/devices.yaml{without}."


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return " ".join(f"{n} {unit}" for n, unit in ((hours, "h"), (minutes, "min")) if n)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _hours(group: Runs) -> str:
    if group.to_do == group.unknown:
        return "unknown" if group.to_do else "0"
    known = f"{group.device_hours:.1f}"
    return f"{known} + {group.unknown} unknown" if group.unknown else known


def _cost(group: Runs) -> str:
    if group.cost_usd is None:
        return "no price"
    return "unknown" if group.to_do == group.unknown > 0 else f"{group.cost_usd:.2f} USD"


def _bases(group: Runs) -> str:
    """What the estimates of a group rest on, with the number of runs where that is several."""
    found = [(word, group.bases[basis]) for basis, (word, _) in BASES.items() if group.bases[basis]]
    if len(found) == 1:
        return found[0][0]
    return ", ".join(f"{word} ({number})" for word, number in found)


def _cores(row: Jobs) -> int:
    return int(dict(row.resources).get("cpus_per_task", row.threads))


def _others(row: Jobs) -> str:
    """What has no column of its own; of raw options to sbatch, the options."""
    known = (*IN_COLUMNS, *UNSAID)
    return ", ".join(
        str(value) if name == "slurm_extra" else f"{name}={value}"
        for name, value in row.resources
        if name not in known and value != ""
    )


def _memory(value: object) -> str:
    if value is None:
        return ""
    return f"{value / 1024:.0f} GiB" if isinstance(value, int) else "?"


def _minutes(value: object) -> str:
    if value is None:
        return ""
    return duration(value * 60) if isinstance(value, int) else str(value)
