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

LONG = 120
"""Characters from which the names of several cells are replaced by their number."""


def group_name(study: StudySettings, cells: Sequence[CellRow], every: Sequence[CellRow]) -> str:
    """`decode = host with workers = 1 and 2; decode = cache with workers = 2`: cells that differ in
    one factor are grouped, by the factor that makes the fewest groups. A factor that one group
    names is named in all. A level of the baseline is named where it distinguishes a cell from one
    of `every` that is not among `cells` and has the grouped level. A name longer than `LONG`
    becomes `19 of 33 settings`."""
    name = _full_name(study, cells, every)
    return name if len(name) <= LONG else f"{len(cells)} of {text.count(len(every), 'setting')}"


def _full_name(study: StudySettings, cells: Sequence[CellRow], every: Sequence[CellRow]) -> str:
    own = {cell.key for cell in cells}
    elsewhere: dict[tuple[str, Level, str], set[Level]] = defaultdict(set)
    for levels in (cell.levels for cell in every if cell.key not in own):
        for (factor, level), (name, other) in itertools.permutations(levels.items(), 2):
            elsewhere[factor, level, name].add(other)

    def telling(factor: str) -> set[str]:
        """The other factors that distinguish any of the cells: then each group names them."""
        needed = set()
        for cell in cells:
            rest = {name: at for name, at in cell.levels.items() if name != factor}
            level = cell.levels[factor]
            needed |= {*notable(study, rest)}
            needed |= {name for name, at in rest.items() if elsewhere[factor, level, name] - {at}}
        return needed

    def others(cell: CellRow, names: set[str]) -> str:
        return text.levels_text({name: at for name, at in cell.levels.items() if name in names})

    groups = {
        name: text.grouped(cells, partial(others, names=telling(name))) for name in study.factors
    }
    workers = next((n for n, f in study.factors.items() if f.sets == WORKERS), None)
    factor = min(groups, key=lambda name: (len(groups[name]), name != workers))
    return "; ".join(
        f"{rest}{' with ' * bool(rest)}{factor} = "
        + text.listed(level_text(cell.levels[factor]) for cell in group)
        for rest, group in groups[factor].items()
    )


def each_name(study: StudySettings, cells: Sequence[CellRow]) -> list[str]:
    """The cells' names, each with the levels of all factors that one of them needs."""
    named = set[str]().union(*(notable(study, cell.levels) for cell in cells))
    kept = [{k: v for k, v in cell.levels.items() if k in named} for cell in cells]
    return [text.levels_text(levels).replace(", ", " with ") for levels in kept]


def several(study: StudySettings, cells: Sequence[Mapping[str, Level]]) -> str:
    """Several settings: `workers = 0, 1 and 2, decode = host` where they differ in one factor; else
    one after another, each with all levels in which they differ."""
    values = {name: [level_text(cell[name]) for cell in cells] for name in cells[0]}
    varied = {name for name, found in values.items() if len(set(found)) > 1}
    named = varied.union(*(notable(study, dict(cell)) for cell in cells))
    if len(varied) != 1:
        names = (text.levels_text({k: v for k, v in c.items() if k in named}) for c in cells)
        return text.listed(name.replace(", ", " with ") for name in names)
    values = {k: found for k, found in values.items() if k in named}
    return ", ".join(f"{k} = {text.listed(dict.fromkeys(found))}" for k, found in values.items())
