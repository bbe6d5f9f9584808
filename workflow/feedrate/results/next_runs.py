"""The measurements of the next pass of the workflow, after the results of the last one.

`search` of a study: the level that each line tries next. A line is the cells of a device that
differ only in the searched factor. If all listed levels fit, the batch that is predicted to be the
largest comes next (docs/memory.md). The largest level that fits is doubled until one runs out of
memory; then the gap between the two is halved.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from feedrate.config.additions import Searched, read_added
from feedrate.config.plan import make_plan, protocols
from feedrate.config.project import Project
from feedrate.config.spec import FULL_EPOCH_STEPS
from feedrate.config.values import cell_name, level_text
from feedrate.core import paths
from feedrate.core.files import write_json
from feedrate.results.columns import CELLS, Column
from feedrate.results.files import Row, read_csv
from feedrate.results.params import BATCH

FINE = 0.05
"""A search ends if the gap is this share of the level that fits, or 1."""


def _read(pattern: str, study: str, columns: Sequence[Column]) -> list[Row]:
    file = Path(pattern.format(study=study))
    return read_csv(file, columns) if file.is_file() else []


def search(project: Project) -> int:
    """Plan the next level of each line, in results/searched.json; the number of lines that got one.
    Raises TableError."""
    searched, count = read_added(Path(), paths.SEARCHED, Searched, {}), 0
    for name, study in project.studies.items():
        rows = _read(paths.CELLS_CSV, name, CELLS) if study.search else []
        for level, cell in next_cells(project, name, rows):
            cells = searched.setdefault(name, {}).setdefault(level, [])
            if cell not in cells:
                cells.append(cell)
                count += 1
    if count:
        write_json(paths.SEARCHED, searched)
    return count


def next_cells(project: Project, name: str, rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """The level that each line of a study tries next, as text, and its cell, as device/cell, by the
    rows of cells.csv. A line waits while one of its cells has failed. No level exceeds the largest
    listed one times the steps of a full epoch: above it, the data would not fill one step."""
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


def next_level(known: dict[int, str], most: int, expected: Callable[[], int | None]) -> int | None:
    """The level, at most `most`, to try after those with a known status; None at the search's end.
    `expected` gives the largest level that should fit, and is asked only where none has failed."""
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
    """The largest batch that should fit; None if no batch is searched, or the memory unknown."""
    factors, searched = project.studies[study].factors, project.studies[study].search
    if not searched or factors[searched].sets != BATCH:
        return None
    from feedrate.models.memory import largest_batch  # imports torch and transformers

    runs = make_plan(project).runs.values()
    of = next(s for s in runs if (s.study, s.device, s.cell) == (study, device, cell))
    return largest_batch(of.settings, project.devices[device])
