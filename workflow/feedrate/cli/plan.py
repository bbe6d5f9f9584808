"""`python -m feedrate plan`: how many runs are to do, for how long and at what cost."""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, product
from operator import attrgetter
from pathlib import Path

from rich.table import Table

from feedrate.cli.display import output, table
from feedrate.cli.snakemake import check_call, layers_of
from feedrate.core.errors import UsageError
from feedrate.flow import configuration
from feedrate.flow.estimate import START_S, Basis, Estimator
from feedrate.flow.graph import Graph
from feedrate.report.text import counted

HOUR_S = 3600.0
BASES: dict[Basis | None, tuple[str, str]] = {
    "cell": ("earlier runs", ""),
    "study": ("similar runs", "earlier runs of other cells on the same device"),
    "published": ("published rates", ""),
    "lowest": ("lowest rate", "the device's lowest published rate, because no source has the cell"),
    "scaled": ("scaled rates", "published rates of another number of these devices"),
    None: ("nothing", "there is no earlier run and no published rate"),
}
"""The basis of an estimate: its name in the table, and an explanation if it needs one."""


@dataclass
class Runs:
    """The runs of a study on a device."""

    study: str
    device: str
    devices_per_job: int
    price_usd_per_hour: float | None
    """For all devices of a job."""
    cells: int = 0
    unsupported_cells: int = 0
    done: int = 0
    to_do: int = 0
    job_s: float = 0.0
    """Estimated time of the runs to do, one after another, s; runs without an estimate left out."""
    bases: Counter[Basis | None] = field(default_factory=Counter)
    """The number of runs to do by the basis of their estimate; None: without one."""

    @property
    def unknown(self) -> int:
        """Runs to do without an estimate."""
        return self.bases[None]

    @property
    def device_hours(self) -> float:
        """Hours of all devices of the jobs."""
        return self.job_s / HOUR_S * self.devices_per_job

    @property
    def cost_usd(self) -> float | None:
        """The cost of the jobs; None without a price."""
        price = self.price_usd_per_hour
        return None if price is None else price * self.job_s / HOUR_S


def plan(options: argparse.Namespace, others: Sequence[str]) -> int:
    """Print the plan; return the exit code."""
    given = check_call(options, others)
    if targets := getattr(given, "targets", None):
        raise UsageError(f"{targets[0]}: plan has no targets; choose studies with --study")
    profile = configuration.read_profile(options.profile)
    layers = layers_of(options, profile)
    graph = Graph(configuration.load(Path(), layers), Path().resolve())
    executor = getattr(given, "executor", None) or profile.executor
    here = executor in ("", "local")
    configuration.check_files(graph.project, graph.runs_to_do(), layers, here=here)
    show(count_runs(graph), on_cluster=not here)
    return 0


def count_runs(graph: Graph) -> list[Runs]:
    """The runs of each study on each device."""
    project = graph.project
    groups: dict[tuple[str, str], Runs] = {}
    for study, device in product(project.studies, project.config.devices):
        entry = project.devices[device]
        groups[study, device] = Runs(study, device, entry.count, entry.price_usd_per_hour)
    for lacking in graph.plan.unsupported:
        groups[lacking.study, lacking.device].unsupported_cells += 1
    estimator = Estimator(project)
    for spec in graph.plan.runs.values():
        group = groups[spec.study, spec.device]
        group.cells += spec.repeat == 1
        if graph.folders.has_result(spec):
            group.done += 1
            continue
        group.to_do += 1
        seconds, basis = estimator.of(spec) or (0.0, None)
        group.bases[basis] += 1
        group.job_s += seconds
    return list(groups.values())


def show(groups: Sequence[Runs], *, on_cluster: bool) -> None:
    """Print the runs, their time and their cost to stdout."""
    console = output()
    for study, of_study in groupby(groups, key=attrgetter("study")):
        console.print(_runs_table(study, list(of_study)))
        console.print()
    for line in _totals([group for group in groups if group.to_do], on_cluster=on_cluster):
        console.print(line)


def _runs_table(study: str, groups: Sequence[Runs]) -> Table:
    priced = any(group.cost_usd is not None for group in groups)
    columns = ["device", "cells", "unsupported", "done", "to do", "device-hours"]
    columns += ["cost"] if priced else []
    rows = []
    for group in groups:
        counts = (group.cells, group.unsupported_cells, group.done, group.to_do)
        row = [group.device, *map(str, counts), _hours(group)]
        row += [_cost(group)] if priced else []
        rows.append([*row, _basis(group)])
    columns.append("estimated from")
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


def _totals(groups: Sequence[Runs], *, on_cluster: bool) -> Iterator[str]:
    """Time and cost of all training jobs to do, and the bases of the estimates."""
    if not groups:
        yield "There are no runs to do."
        return
    unknown = sum(group.unknown for group in groups)
    if unknown == sum(group.to_do for group in groups):
        yield "The duration is not known: there are no earlier runs and no published rates."
        return
    hours = sum(group.device_hours for group in groups)
    by_device: dict[str, float] = {}
    for group in groups:
        by_device[group.device] = by_device.get(group.device, 0.0) + group.job_s
    wall_s = max(by_device.values()) if on_cluster else sum(by_device.values())
    per_device = " on each device" if on_cluster else ""
    more = f", and {counted(unknown, 'run')} of unknown length" if unknown else ""
    yield (
        f"Training: {hours:.1f} device-hours, about {duration(wall_s)} with one job at a "
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
