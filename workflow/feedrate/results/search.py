"""`search` of a study: after each pass of the workflow, the level that each line tries next.

A line is the cells of a device that differ only in the searched factor. If all listed levels fit,
the batch that is predicted to be the largest comes next (docs/memory.md). The largest level that
fits is doubled until one runs out of memory; then the gap between the two is halved.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from feedrate.config.plan import make_plan, protocols
from feedrate.config.project import Project
from feedrate.config.search import Searched
from feedrate.config.spec import FULL_EPOCH_STEPS
from feedrate.config.values import cell_name, level_text, load
from feedrate.core import paths
from feedrate.core.files import write_json
from feedrate.results.columns import CELLS
from feedrate.results.tables import Row, read_csv

BATCH = "train.batch_size"
FINE = 0.05
"""A search ends if the gap is this share of the level that fits, or 1."""


def search(project: Project) -> int:
    """Plan the next level of each line, in results/searched.json; the number of lines that got one.

    Raises TableError for a damaged result file.
    """
    file, count = Path(paths.SEARCHED), 0
    searched = load(file, Searched, paths.SEARCHED) if file.is_file() else {}
    for name, study in project.studies.items():
        table = Path(paths.CELLS_CSV.format(study=name))
        rows = read_csv(table, CELLS) if study.search and table.is_file() else []
        for level, cell in next_cells(project, name, rows):
            cells = searched.setdefault(name, {}).setdefault(level, [])
            if cell not in cells:
                cells.append(cell)
                count += 1
    if count:
        write_json(paths.SEARCHED, searched)
    return count


def next_cells(project: Project, name: str, rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """The level that each line of a study tries next, as text, and its cell, as device/cell.

    `rows` are those of cells.csv. A line waits while one of its cells has failed. No level is above
    the listed ones' largest times the steps of a full epoch: the data would not make one step.
    """
    study, added = project.studies[name], project.searched.get(name, {})
    searched = study.search or ""
    lines: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        others = {factor: row[factor] for factor in study.factors if factor != study.search}
        lines.setdefault((row["device"], cell_name(others)), []).append(row)
    for (device, _), line in lines.items():
        known = {row[searched]: row["status"] for row in line}
        if device not in project.config.devices or set(known.values()) - {"ok", "out_of_memory"}:
            continue
        listed = [level for level in known if level_text(level) not in added]
        steps = protocols(project)[name][device].steps
        expected = partial(predicted, project, name, device, line[0]["cell"])
        level = next_level(known, max(listed) * min(FULL_EPOCH_STEPS, steps), expected)
        if level is not None:
            levels = {factor: line[0][factor] for factor in study.factors} | {searched: level}
            yield level_text(level), f"{device}/{cell_name(levels)}"


def next_level(
    known: dict[int, str], most: int, expected: Callable[[], int | None] = lambda: None
) -> int | None:
    """The level to try after those with a known status; None where the search ends, which it also
    does if not even the smallest fits. No level is above `most`. `expected` gives the largest level
    that should fit, and is asked only where none has failed."""
    fits = max((level for level, status in known.items() if status == "ok"), default=None)
    if fits is None:
        return None
    too_large = min((level for level in known if level > fits), default=None)
    if too_large is None:
        likely = expected() or 0
        level = likely if fits < likely <= most else 2 * fits
        return level if level <= most else None
    return (fits + too_large) // 2 if too_large - fits > max(1, FINE * fits) else None


def predicted(project: Project, study: str, device: str, cell: str) -> int | None:
    """The largest batch that should fit, for the settings of a cell; None if not the batch is
    searched, or the device's memory is not known."""
    factors, searched = project.studies[study].factors, project.studies[study].search
    if not searched or factors[searched].sets != BATCH:
        return None
    from feedrate.models.memory import largest_batch  # imports torch and transformers

    runs = make_plan(project).runs.values()
    of = next(s for s in runs if (s.study, s.device, s.cell) == (study, device, cell))
    return largest_batch(of.settings, project.devices[device])
