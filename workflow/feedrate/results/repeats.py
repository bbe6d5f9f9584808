"""`repeats: auto`: after each pass of the workflow, the cells that get one more repeat.

The data are looked at again after every block of repeats. So that all looks hold together, each has
the confidence of `statistics.look_confidence`: an interval covers, whenever a study ends.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from feedrate.config.plan import protocols
from feedrate.config.project import Project
from feedrate.core import paths
from feedrate.core.files import write_json
from feedrate.results.columns import CELLS, CLAIMS, RUNS, Column
from feedrate.results.tables import Row, read_csv


def extend(project: Project) -> int:
    """Plan one more repeat of the cells of open decisions, in results/repeats.json; their number.

    It is 0 without `repeats: auto`. Raises TableError for a damaged result file.
    """

    def read(pattern: str, columns: Sequence[Column]) -> list[Row]:
        files = (Path(pattern.format(study=study)) for study in project.studies)
        return [row for file in files if file.is_file() for row in read_csv(file, columns)]

    if project.config.repeats != "auto":
        return 0
    cells, claims = read(paths.CELLS_CSV, CELLS), read(paths.CLAIMS_CSV, CLAIMS)
    repeats = next_repeats(project, cells, claims, read(paths.RESULTS_CSV, RUNS))
    if more := len(repeats.items() - project.further.items()):
        write_json(paths.REPEATS, repeats)
    return more


def next_repeats(
    project: Project, cells: Sequence[Row], claims: Sequence[Row], runs: Sequence[Row]
) -> dict[str, int]:
    """`project.further` with one more repeat of each cell that an open decision rests on.

    The rows are those of cells.csv, claims.csv and results.csv. Nothing is added where nothing is
    open or the budget is spent. If the hours do not suffice for all, the cells that need the fewest
    repeats come first. A cell waits until all its runs have ended, and has one that counts.
    """
    budget, repeats = project.config.auto_repeats, dict(project.further)
    planned = {(n, d): p.repeats for n, of in protocols(project).items() for d, p in of.items()}
    durations_s: dict[str, list[float]] = {}
    left_s = budget.hours * 3600
    for run in (run for run in runs if run["duration_s"] and not run["measured_as"]):
        durations_s.setdefault(_key(run), []).append(run["duration_s"])
        usual = planned.get((run["study"], run["device"]), run["repeat"])
        left_s -= run["duration_s"] * (run["repeat"] > usual)
    for row in _open_cells(cells, claims):
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


def _open_cells(cells: Sequence[Row], claims: Sequence[Row]) -> list[Row]:
    """The cells that open recommendations and claims rest on; those that need the fewest repeats
    come first."""
    told = [claim for claim in claims if claim["verdict"] == "cannot tell"]
    named = {f"{claim['study']}/{cell}" for claim in told for cell in claim["cells"].split(";")}
    name = "{study}/{device}/{cell}".format_map
    wanted = {_key(row) for row in cells if row.get("open") or name(row) in named}
    found = [row for row in cells if name(row) in wanted]
    return sorted(found, key=lambda row: row.get("repeats_to_decide") or 1)
