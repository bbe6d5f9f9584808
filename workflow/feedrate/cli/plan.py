"""`python -m feedrate plan`: how many runs are to do, for how long and at what cost. With --cell,
which `run` has too, these are the runs of some cells."""

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from feedrate.cli.display import output, table
from feedrate.cli.snakemake import add_choices, check_call, is_local, layers_of, load_graph
from feedrate.config.errors import Problems
from feedrate.config.plan import timeouts_min
from feedrate.config.project import Project, check_levels
from feedrate.config.spec import RunSpec
from feedrate.config.values import cell_name, parse_levels
from feedrate.core import paths
from feedrate.core.errors import UsageError
from feedrate.flow import configuration
from feedrate.flow.graph import Graph
from feedrate.report.text import counted

COLUMNS = (
    "device", "cells", "unsupported", "done", "to do", "time", "time at most", "cost (USD)",
    "cost at most",
)  # fmt: skip


class Estimate(NamedTuple):
    """The shortest and the longest likely duration of some runs, one after another, s; the sum of
    their time limits; their number; and how many of them the first two leave out."""

    low_s: float = 0.0
    high_s: float = 0.0
    limit_s: float = 0.0
    runs: int = 0
    unknown: int = 0


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    add_choices(parser)
    add_cell_option(parser)


def add_cell_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses cells."""
    text = "train only [STUDY:]FACTOR=LEVEL,…, other factors at their baselines; repeatable"
    parser.add_argument("--cell", action="append", default=[], metavar="CELL", help=text)


def chosen_runs(graph: Graph, texts: Sequence[str]) -> list[RunSpec]:
    """The runs of the cells that `texts` name, in measuring order; without texts all runs. A cell
    without runs of its own has those that it shares. Raises UsageError for a text that names no
    cell with runs."""
    plan = graph.plan
    if not texts:
        return list(plan.runs.values())
    shared = {(cell.study, cell.device, cell.cell): cell.measured_as for cell in plan.shared}
    with_runs = {key[:3] for key in plan.runs}
    chosen = set[tuple[str, str, str]]()
    for text in texts:
        cells = named_cells(graph, text)
        on_devices = {
            (study, device, shared.get((study, device, cell), cell))
            for study, cell in cells
            for device in graph.project.config.devices
        }
        if on_devices.isdisjoint(with_runs):
            unsupported = (c for c in plan.unsupported if (c.study, c.cell) in cells)
            lacks = "; ".join(f"{cell.device} lacks {cell.lacks}" for cell in unsupported)
            raise UsageError(f"--cell {text}: {lacks or 'the study leaves this cell out'}")
        chosen |= on_devices
    return [spec for key, spec in plan.runs.items() if key[:3] in chosen]


def named_cells(graph: Graph, text: str) -> set[tuple[str, str]]:
    """The studies and cells that a text of --cell names. Raises UsageError if there is none."""
    only, _, words = text.rpartition(":")
    try:
        levels = parse_levels(words, ",")
    except ValueError as error:
        raise UsageError(f"--cell {text}: {error}") from None
    cells = set[tuple[str, str]]()
    problems = Problems(f"--cell {text}")
    if only:
        problems.check_known("", only, graph.project.studies, "studies of this call")
    for name, study in graph.project.studies.items():
        if only in ("", name):
            before = len(problems)
            check_levels(problems, name, levels, {n: f.levels for n, f in study.factors.items()})
            if len(problems) == before:
                all_levels = study.baseline | levels
                cell = cell_name({factor: all_levels[factor] for factor in study.factors})
                cells.add((name, cell))
    if not cells:
        raise UsageError("\n".join(problems))
    return cells


def plan(options: argparse.Namespace, words: Sequence[str]) -> int:
    """Print the plan; return the exit code."""
    snakemake = check_call(options, words)
    if snakemake.targets:
        target = snakemake.targets[0]
        raise UsageError(f"{target}: plan has no targets; choose studies with --study")
    layers = layers_of(options)
    runs_here = is_local(options, snakemake)
    graph = load_graph(options)
    runs = chosen_runs(graph, options.cell)
    to_do = [spec for spec in runs if not graph.folders.has_result(spec)]
    configuration.check_files(graph.project, to_do, layers, runs_here=runs_here)
    for study in graph.project.studies:
        rows = device_rows(graph, study, runs)
        output().print(table(f"Runs of {study}", COLUMNS, rows, left=("device",)), "")
    print(outlook(graph, runs, on_cluster=not runs_here))
    return 0


def device_rows(graph: Graph, study: str, runs: Sequence[RunSpec]) -> Iterator[list[str]]:
    """For each device, those of the `runs` that are of a study as cells of the table."""
    for device in graph.project.config.devices:
        specs = [spec for spec in runs if (spec.study, spec.device) == (study, device)]
        lacking = [c for c in graph.plan.unsupported if (c.study, c.device) == (study, device)]
        times = estimate(graph.project, [s for s in specs if not graph.folders.has_result(s)])
        cells = sum(spec.repeat == 1 for spec in specs)
        counts = (cells, len(lacking), len(specs) - times.runs, times.runs)
        row = [device, *map(str, counts)]
        if times.runs:
            row.append("unknown" if times.unknown else range_text(times.low_s, times.high_s))
            row.append(range_text(times.limit_s, times.limit_s))
            price = graph.project.devices[device].price_usd_per_hour
            if price is None:
                row += ["no price", "no price"]
            else:
                low, high, most = (f"{price * duration_s / 3600:.2f}" for duration_s in times[:3])
                row += ["unknown" if times.unknown else f"{low} to {high}", most]
        yield row


def outlook(graph: Graph, runs: Iterable[RunSpec], *, on_cluster: bool) -> str:
    """How many of some runs are to do, and how long they take: `28 runs, 10 to 30 min (like
    your earlier runs); at most 14 h by their time limits`. Devices train side by side on a cluster,
    else in turn."""
    by_device: dict[str, list[RunSpec]] = {}
    for spec in runs:
        if not graph.folders.has_result(spec):
            by_device.setdefault(spec.device, []).append(spec)
    if not by_device:
        return "There are no runs to do."
    estimates = [estimate(graph.project, specs) for specs in by_device.values()]
    combine = max if on_cluster else sum
    number_of_runs = sum(times.runs for times in estimates)
    unknown = sum(times.unknown for times in estimates)
    text = counted(number_of_runs, "run")
    if unknown < number_of_runs:
        low_s = combine(times.low_s for times in estimates)
        high_s = combine(times.high_s for times in estimates)
        part = f" for {number_of_runs - unknown} of them" if unknown else ""
        text += f", {range_text(low_s, high_s)}{part} (like your earlier runs)"
    limit_s = combine(times.limit_s for times in estimates)
    side = ", with one job at a time on each device" if on_cluster else ""
    return f"{text}; at most {range_text(limit_s, limit_s)} by their time limits{side}."


def estimate(project: Project, specs: Sequence[RunSpec]) -> Estimate:
    """How long runs take: like earlier runs of the same cell, else study, else device. Where these
    had fewer or more samples, the range is from none to all of their time in proportion."""
    limits_min = timeouts_min(project)
    earlier = {device: list(earlier_runs(device)) for device in {spec.device for spec in specs}}
    low_s = high_s = limit_s = 0.0
    unknown = 0
    for spec in specs:
        limit_s += limits_min[spec.study][spec.device] * 60
        runs = earlier[spec.device]
        runs = [run for run in runs if run[0].study == spec.study] or runs
        runs = [run for run in runs if run[0].cell == spec.cell] or runs
        if not runs:
            unknown += 1
            continue
        samples = window_samples(spec)
        low_s += min(time_s * min(1.0, samples / window_samples(run)) for run, time_s in runs)
        high_s += max(time_s * max(1.0, samples / window_samples(run)) for run, time_s in runs)
    return Estimate(low_s, high_s, limit_s, len(specs), unknown)


def earlier_runs(device: str) -> Iterable[tuple[RunSpec, float]]:
    """The runs on a device that ended well, with their durations, s."""
    for file in Path(paths.RUNS).glob(f"*/{device}/*/rep*/{paths.OUTCOME_NAME}"):
        try:
            outcome = json.loads(file.read_bytes())
            spec = msgspec.json.decode(file.with_name(paths.SPEC_NAME).read_bytes(), type=RunSpec)
        except (OSError, ValueError):
            continue  # deleted meanwhile, or of another version
        if outcome["status"] == "ok" and outcome.get("duration_s"):
            yield spec, outcome["duration_s"]


def window_samples(spec: RunSpec) -> int:
    """Samples of the timed window, all ranks."""
    return (spec.protocol.steps - spec.protocol.warmup_steps) * spec.step_samples


def range_text(low_s: float, high_s: float) -> str:
    """`40 to 70 s`, `10 to 30 min`, `3 to 5 h`; one number if both are the same."""
    unit, size_s = "s", 1.0
    if high_s >= 2 * 3600:
        unit, size_s = "h", 3600.0
    elif high_s >= 2 * 60:
        unit, size_s = "min", 60.0
    low, high = f"{low_s / size_s:.0f}", f"{high_s / size_s:.0f}"
    return f"{high} {unit}" if low == high else f"{low} to {high} {unit}"
