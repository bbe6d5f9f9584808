"""`python -m feedrate plan`: how many runs are to do, for how long and at what cost."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby, product
from operator import attrgetter
from pathlib import Path

from feedrate.cli.display import output, table
from feedrate.cli.snakemake import check_call, layers_of
from feedrate.config.plan import timeouts_min
from feedrate.core.errors import UsageError
from feedrate.flow import configuration
from feedrate.flow.estimate import Estimator
from feedrate.flow.graph import Graph

HOUR_S = 3600.0


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
    unknown: int = 0
    """Runs to do without an estimate."""
    job_s: float = 0.0
    """Estimated time of the runs to do, one after another, s; unknown ones left out."""
    limit_s: float = 0.0
    """The same if every run takes all the time that its protocol allows."""
    bases: set[str] = field(default_factory=set)

    @property
    def row(self) -> list[str]:
        """The cells of the table, as text."""
        counts = (self.cells, self.unsupported_cells, self.done, self.to_do)
        hours = [
            f"{seconds / HOUR_S * self.devices_per_job:.1f}"
            for seconds in (self.job_s, self.limit_s)
        ]
        if self.to_do and self.to_do == self.unknown:
            hours[0] = "unknown"
        elif self.unknown:
            hours[0] += f" + {self.unknown} unknown"
        price = self.price_usd_per_hour
        costs = ["no price", "no price"]
        if price is not None:
            costs = [f"{price * s / HOUR_S:.2f} USD" for s in (self.job_s, self.limit_s)]
        return [self.device, *map(str, counts), *hours, *costs, ", ".join(sorted(self.bases))]


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
    for cell in graph.plan.unsupported:
        groups[cell.study, cell.device].unsupported_cells += 1
    estimator, limits_min = Estimator(project), timeouts_min(project)
    for spec in graph.plan.runs.values():
        group = groups[spec.study, spec.device]
        group.cells += spec.repeat == 1
        if graph.folders.has_result(spec):
            group.done += 1
            continue
        group.to_do += 1
        group.limit_s += limits_min[spec.study][spec.device] * 60
        estimate = estimator.of(spec)
        if estimate is None:
            group.unknown += 1
        else:
            group.job_s += estimate.duration_s
            group.bases.add(estimate.basis)
    return list(groups.values())


def show(groups: Sequence[Runs], *, on_cluster: bool) -> None:
    """Print the runs, their time and their cost to stdout."""
    console = output()
    heading = ["device", "cells", "unsupported", "done", "to do", "device-hours", "at most"]
    heading += ["cost", "at most", "estimated from"]
    for study, runs in groupby(groups, key=attrgetter("study")):
        rows = (group.row for group in runs)
        wrapped = ("estimated from",)
        title = f"Runs of {study}"
        console.print(table(title, heading, rows, left=("device",), wrapped=wrapped))
        console.print()
    if not any(group.to_do for group in groups):
        console.print("There are no runs to do.")
        return
    by_device: dict[str, list[float]] = {}
    for group in groups:
        sums = by_device.setdefault(group.device, [0.0, 0.0])
        sums[0] += group.job_s
        sums[1] += group.limit_s
    # On a cluster, devices train side by side.
    combine = max if on_cluster else sum
    job_s, limit_s = (combine(times) for times in zip(*by_device.values(), strict=True))
    unknown = sum(group.unknown for group in groups)
    likely = f"about {duration(job_s)}"
    if unknown == sum(group.to_do for group in groups):
        likely = "an unknown time"
    elif unknown:
        likely += f" without {unknown} runs of unknown length"
    per_device = " on each device" if on_cluster else ""
    console.print(
        f"Training takes {likely}, and at most {duration(limit_s)}, with one job at a "
        f"time{per_device}. Queues, data and reports are not included."
    )


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return " ".join(f"{n} {unit}" for n, unit in ((hours, "h"), (minutes, "min")) if n)
