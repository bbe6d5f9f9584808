"""The names of several cells in a sentence."""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

from feedrate.config.values import Level, level_text
from feedrate.report import text
from feedrate.report.lines import notable
from feedrate.report.params import StudySettings
from feedrate.report.rows import CellRow
from feedrate.results.settings import WORKERS


def group_name(study: StudySettings, cells: Sequence[CellRow], every: Sequence[CellRow]) -> str:
    """`workers = 1 and 2; decode = host with workers = 2`: cells that differ in one factor are
    grouped, by the factor that makes the fewest groups. A level of the baseline is named where it
    tells a cell from one of `every` that is not among `cells` and has the grouped level."""
    own = {cell.key for cell in cells}
    beside: dict[tuple[str, Level, str], set[Level]] = defaultdict(set)
    for levels in (cell.levels for cell in every if cell.key not in own):
        for (factor, level), (name, other) in itertools.permutations(levels.items(), 2):
            beside[factor, level, name].add(other)

    def others(cell: CellRow, factor: str) -> str:
        level = cell.levels[factor]
        rest = {name: at for name, at in cell.levels.items() if name != factor}
        named = notable(study, rest)
        told = {k: v for k, v in rest.items() if k in named or beside[factor, level, k] - {v}}
        return text.levels_text(told)

    groups = {name: text.grouped(cells, partial(others, factor=name)) for name in study.factors}
    workers = next((n for n, f in study.factors.items() if f.sets == WORKERS), None)
    factor = min(groups, key=lambda name: (len(groups[name]), name != workers))
    return "; ".join(
        f"{rest}{' with ' * bool(rest)}{factor} = "
        + text.listed(level_text(cell.levels[factor]) for cell in group)
        for rest, group in groups[factor].items()
    )


def several(study: StudySettings, cells: Sequence[Mapping[str, Level]]) -> str:
    """Several settings: `workers = 0, 1 and 2, decode = host` where they differ in one factor; else
    each by itself, with all levels in which they differ."""
    values = {name: [level_text(cell[name]) for cell in cells] for name in cells[0]}
    varied = {name for name, found in values.items() if len(set(found)) > 1}
    named = varied.union(*(notable(study, dict(cell)) for cell in cells))
    if len(varied) != 1:
        told = (text.levels_text({k: v for k, v in c.items() if k in named}) for c in cells)
        return text.listed(one.replace(", ", " with ") for one in told)
    values = {k: found for k, found in values.items() if k in named}
    return ", ".join(f"{k} = {text.listed(dict.fromkeys(found))}" for k, found in values.items())
