"""`python -m feedrate plan`: how many runs are to do, for how long and at what cost."""

import argparse
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from feedrate.cli.display import output, table
from feedrate.cli.snakemake import check_call, is_local, layers_of
from feedrate.core.errors import UsageError
from feedrate.flow import configuration
from feedrate.flow.estimate import Estimator, outlook, range_text
from feedrate.flow.graph import Graph

HOUR_S = 3600.0
COLUMNS = (
    *("device", "cells", "unsupported", "done", "to do", "time", "time at most"),
    *("cost (USD)", "cost at most"),
)


def plan(options: argparse.Namespace, others: Sequence[str]) -> int:
    """Print the plan; return the exit code."""
    given = check_call(options, others)
    if given.targets:
        raise UsageError(f"{given.targets[0]}: plan has no targets; choose studies with --study")
    layers, here = layers_of(options), is_local(options, given)
    graph = Graph(configuration.load(Path(), layers), Path().resolve())
    configuration.check_files(graph.project, graph.runs_to_do(), layers, here=here)
    for study in graph.project.studies:
        rows = list(device_rows(graph, study))
        output().print(table(f"Runs of {study}", COLUMNS, rows, left=("device",)), "")
    print(outlook_of(graph, graph.project.studies, on_cluster=not here))
    return 0


def outlook_of(graph: Graph, studies: Collection[str], *, on_cluster: bool) -> str:
    """How many runs of some studies are to do, and how long they take."""
    estimator = Estimator(graph.project)
    to_do = [spec for spec in graph.runs_to_do() if spec.study in studies]
    of_device = (
        [spec for spec in to_do if spec.device == device] for device in graph.project.config.devices
    )
    return outlook([estimator.of(specs) for specs in of_device], on_cluster=on_cluster)


def device_rows(graph: Graph, study: str) -> Iterator[list[str]]:
    """For each device, the runs of a study as cells of the table."""
    estimator = Estimator(graph.project)
    for device in graph.project.config.devices:
        specs = [spec for spec in graph.plan.of_study(study) if spec.device == device]
        cells = sum(spec.repeat == 1 for spec in specs)
        lacking = [c for c in graph.plan.unsupported if (c.study, c.device) == (study, device)]
        times = estimator.of(spec for spec in specs if not graph.folders.has_result(spec))
        counts = (cells, len(lacking), len(specs) - times.runs, times.runs)
        likely = "unknown" if times.unknown else range_text(times.low_s, times.high_s)
        at_most = range_text(times.limit_s, times.limit_s)
        price = graph.project.devices[device].price_usd_per_hour
        costs = ["no price", "no price"]
        if price is not None:
            low, high, most = (f"{price * s / HOUR_S:.2f}" for s in times[:3])
            costs = ["unknown" if times.unknown else f"{low} to {high}", most]
        yield [device, *map(str, counts), *([likely, at_most, *costs] if times.runs else [])]
