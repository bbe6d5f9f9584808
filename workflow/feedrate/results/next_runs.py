"""The measurements of the next pass of the workflow, after the results of the last one.

`repeats: auto`: one more repeat of the cells that open decisions rest on. The data are looked at
after every block of repeats; `statistics.look_confidence` makes all looks hold together.

`search` of a study: the level that each line tries next. A line is the cells of a device that
differ only in the searched factor. If all listed levels fit, the batch that is predicted to be the
largest comes next (docs/memory.md). The largest level that fits is doubled until one runs out of
memory; then the gap between the two is halved.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from feedrate.config.additions import Searched, read_added
from feedrate.config.plan import make_plan, protocols
from feedrate.config.project import Project
from feedrate.config.spec import FULL_EPOCH_STEPS
from feedrate.config.study import Thresholds
from feedrate.config.values import cell_name, level_text
from feedrate.core import paths
from feedrate.core.files import write_json
from feedrate.results.columns import CELLS, CLAIMS, RUNS, Column
from feedrate.results.comparison import OPEN, compare, read_results
from feedrate.results.files import Row, TableError, read_csv
from feedrate.results.params import BATCH, per_look

FINE = 0.05
"""A search ends if the gap is this share of the level that fits, or 1."""


def _read(pattern: str, study: str, columns: Sequence[Column]) -> list[Row]:
    file = Path(pattern.format(study=study))
    return read_csv(file, columns) if file.is_file() else []


def extend(project: Project) -> int:
    """Plan one more repeat of the cells of open decisions, in results/repeats.json; their number, 0
    without `repeats: auto`. Raises TableError."""
    if project.config.repeats != "auto":
        return 0
    tables = {paths.CELLS_CSV: CELLS, paths.CLAIMS_CSV: CLAIMS, paths.RESULTS_CSV: RUNS}
    cells, claims, runs = (
        [row for study in project.studies for row in _read(file, study, columns)]
        for file, columns in tables.items()
    )
    repeats = next_repeats(project, cells, claims, runs, _gated(project))
    if more := len(repeats.items() - project.further.items()):
        write_json(paths.REPEATS, repeats)
    return more


def _gated(project: Project) -> list[Row]:
    """The comparison with the results of `auto_repeats.gate`, if any. Raises TableError."""
    gate = project.config.auto_repeats.gate
    if not (gate and Path(gate).exists()):
        return []
    try:
        accepted, ours = map(read_results, (Path(gate), Path(paths.RESULTS)))
    except (OSError, ValueError) as error:
        raise TableError(f"auto_repeats: gate: {error}") from None
    return compare(accepted, ours, per_look(project, Thresholds(), *project.studies))


def next_repeats(
    project: Project,
    cells: Sequence[Row],
    claims: Sequence[Row],
    runs: Sequence[Row],
    compared: Sequence[Row] = (),
) -> dict[str, int]:
    """`project.further` with one more repeat of each cell that an open decision rests on, by the
    rows of cells.csv, claims.csv, results.csv and a comparison with accepted results. The cells
    that need the fewest repeats come first, as far as the hours of the budget suffice. A cell waits
    until all its runs have ended, and one counts."""
    budget, repeats = project.config.auto_repeats, dict(project.further)
    planned = {(n, d): p.repeats for n, of in protocols(project).items() for d, p in of.items()}
    durations_s: dict[str, list[float]] = {}
    left_s = budget.hours * 3600
    for run in (run for run in runs if run["duration_s"] and not run["measured_as"]):
        durations_s.setdefault(_key(run), []).append(run["duration_s"])
        usual = planned.get((run["study"], run["device"]), run["repeat"])
        left_s -= run["duration_s"] * (run["repeat"] > usual)
    for row in _open_cells(cells, claims, compared):
        key = _key(row)
        usual = planned.get((row["study"], row["device"]), budget.most)
        number = max(usual, repeats.get(key, 0))
        cost_s = median(durations_s.get(key, [0.0]))
        ended = row["status"] == "ok" and row["runs"] >= number
        if ended and number < budget.most and cost_s <= left_s:
            repeats[key] = number + 1
            left_s -= cost_s
    return repeats


def _key(row: Row) -> str:
    """The cell whose runs a row shows, as `Project.further` names it."""
    return f"{row['study']}/{row['device']}/{row['measured_as'] or row['cell']}"


def _open_cells(cells: Sequence[Row], claims: Sequence[Row], compared: Sequence[Row]) -> list[Row]:
    """The cells that open recommendations, claims and comparisons rest on, fewest repeats first."""
    undecided = [claim for claim in claims if claim["verdict"] == "cannot tell"]
    named = {f"{one['study']}/{cell}" for one in undecided for cell in one["cells"].split(";")}
    name = "{study}/{device}/{cell}".format_map
    named |= {name(row) for row in compared if row["change"] == OPEN}
    wanted = {_key(row) for row in cells if row.get("open") or name(row) in named}
    found = [row for row in cells if name(row) in wanted]
    return sorted(found, key=lambda row: row.get("repeats_to_decide") or 1)


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
