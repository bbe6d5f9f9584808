"""The option --cell: the runs of some cells of a plan."""

import argparse
from collections.abc import Sequence

from feedrate.config.errors import Problems
from feedrate.config.project import check_levels
from feedrate.config.spec import RunSpec
from feedrate.config.values import cell_name, parse_levels
from feedrate.core.errors import UsageError
from feedrate.flow.graph import Graph


def add_cell_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses cells."""
    help_text = "train only [STUDY:]FACTOR=LEVEL,…, other factors at their baselines; repeatable"
    parser.add_argument("--cell", action="append", default=[], metavar="CELL", help=help_text)


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
        named = named_cells(graph, text)
        cells = set[tuple[str, str, str]]()
        for study, cell in named:
            for device in graph.project.config.devices:
                cells.add((study, device, shared.get((study, device, cell), cell)))
        if cells.isdisjoint(with_runs):
            unsupported = (c for c in plan.unsupported if (c.study, c.cell) in named)
            lacks = "; ".join(f"{cell.device} lacks {cell.lacks}" for cell in unsupported)
            raise UsageError(f"--cell {text}: {lacks or 'the study leaves this cell out'}")
        chosen |= cells
    return [spec for key, spec in plan.runs.items() if key[:3] in chosen]


def named_cells(graph: Graph, text: str) -> set[tuple[str, str]]:
    """The studies and cells that a text of --cell names. Raises UsageError if there is none."""
    only, _, words = text.rpartition(":")
    problems, named = Problems(f"--cell {text}"), set[tuple[str, str]]()
    if only:
        problems.check_known("", only, graph.project.studies, "studies of this call")
    try:
        levels = parse_levels(words, ",")
    except ValueError as error:
        raise UsageError(f"--cell {text}: {error}") from None
    for name, study in graph.project.studies.items():
        if only in ("", name):
            known, before = {n: f.levels for n, f in study.factors.items()}, len(problems)
            check_levels(problems, name, levels, known)
            if len(problems) == before:
                cell = study.baseline | levels
                named.add((name, cell_name({factor: cell[factor] for factor in study.factors})))
    if not named:
        raise UsageError("\n".join(problems))
    return named
