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
    plan, studies = graph.plan, graph.project.studies
    shared = {(cell.study, cell.cell): cell.measured_as for cell in plan.shared}
    measured = {(spec.study, spec.cell) for spec in plan.runs.values()}
    chosen = set() if texts else measured
    for text in texts:
        only, _, words = text.rpartition(":")
        problems, named = Problems(f"--cell {text}"), set[tuple[str, str]]()
        if only:
            problems.check_known("", only, studies, "studies of this call")
        try:
            levels = parse_levels(words, ",")
        except ValueError as error:
            raise UsageError(f"--cell {text}: {error}") from None
        for name in (name for name in studies if only in ("", name)):
            study, before = studies[name], len(problems)
            check_levels(problems, name, levels, {n: f.levels for n, f in study.factors.items()})
            if len(problems) == before:
                all_levels = study.baseline | levels
                named.add(
                    (name, cell_name({factor: all_levels[factor] for factor in study.factors}))
                )
        cells = {(study, shared.get((study, cell), cell)) for study, cell in named} & measured
        if not named:
            raise UsageError("\n".join(problems))
        if not cells:
            unsupported = (c for c in plan.unsupported if (c.study, c.cell) in named)
            lacks = "; ".join(f"{cell.device} lacks {cell.lacks}" for cell in unsupported)
            raise UsageError(f"--cell {text}: {lacks or 'the study leaves this cell out'}")
        chosen |= cells
    return [spec for spec in plan.runs.values() if (spec.study, spec.cell) in chosen]
