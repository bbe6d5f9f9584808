"""Two sets of results, cell by cell: what became slower or faster, and what else differs."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from feedrate.config.study import Thresholds
from feedrate.config.values import BETWEEN_LEVELS, parse_levels
from feedrate.core.paths import CELLS_CSV, RESULTS, RESULTS_CSV
from feedrate.results.cells import STATUSES, Key, cause_of, rates_of, status_of
from feedrate.results.columns import COMPARISON, RUNS, Column, with_factors
from feedrate.results.statistics import median, ratio_interval
from feedrate.results.tables import Row, read_csv

Software = dict[str, str]
"""Version by name: of the driver, Python, the platform and each package."""

NEEDED = ("study", "device", "cell", "repeat", "status", "samples_per_s")
"""Columns without which there is nothing to compare."""
SLOWER, FASTER, EQUAL = "slower", "faster", "no difference"
OTHER_STATUS, ONLY_BEFORE, ONLY_AFTER = "other status", "only before", "only after"
NO_RATE = "no rate"
COMPARED = (SLOWER, FASTER, EQUAL)
"""The changes that have a ratio."""

SOFTWARE = "software"
"""The key of a run's `Software` in its row: None where its record is not there, empty where the job
reported nothing."""
WORK = {"data": "data_digest", "code": "source_digest"}
"""What makes a run another one, besides its spec, by its column."""
SHOWN = ("device_model", "host", "cores_granted", "commit")
"""Columns that say where, and from what, a run was measured."""
BELOW = ("driver", "Python", "platform")
"""Software that is compared where it is known; packages are known completely or not at all."""
NONE = "none"
"""The version of a package that is not installed."""


class Results(NamedTuple):
    """A set of results: its results.csv, and the runs in it by cell."""

    path: Path
    cells: Mapping[Key, Sequence[Row]]

    @property
    def runs(self) -> list[Row]:
        """All runs that were started."""
        return [r for runs in self.cells.values() for r in runs if r["status"] != "unsupported"]


class Moved(NamedTuple):
    """A fact that differs between two sets of results on some devices."""

    what: str
    before: str
    after: str
    devices: list[str]


def read_results(place: Path) -> Results:
    """Read the runs of a folder of results, of a clone that has one, or of a file in it.

    For cells.csv the results.csv beside it is read: intervals need single runs. Raises OSError and
    ValueError, each with a sentence, where there is none or it is not one.
    """
    path = _results_csv(place)
    rows = read_csv(path, RUNS)
    if not rows:
        raise ValueError(f"{path}: there are no runs in it")
    if lacking := [name for name in NEEDED if name not in rows[0]]:
        raise ValueError(f"{path}: no results of runs: there is no column {lacking[0]!r}")
    cells: dict[Key, list[Row]] = {}
    for row in rows:
        key = (row["study"], row["device"], row["cell"])
        if fault := _fault(row):
            raise ValueError(f"{path}: {' '.join(key)}, repeat {row['repeat']}: {fault}")
        cells.setdefault(key, []).append(row | {SOFTWARE: _software(row, path)})
    return Results(path, cells)


def compare(before: Results, after: Results, lines: Thresholds) -> list[Row]:
    """A row for each cell of either set, by study, device and ratio, slowest first; the cells of a
    device without a ratio come last."""

    def place(row: Row) -> tuple[Any, ...]:
        ratio = row.get("ratio")
        return row["study"], row["device"], math.inf if ratio is None else ratio, row["cell"]

    keys = dict.fromkeys((*before.cells, *after.cells))
    rows = [_row(key, before.cells.get(key, ()), after.cells.get(key, ()), lines) for key in keys]
    return sorted(rows, key=place)


def comparison_columns(rows: Sequence[Row]) -> list[Column]:
    """The columns of these rows, with those of their factors."""
    levels: dict[str, list[Any]] = {}
    for row in rows:
        for name, level in parse_levels(row["cell"], BETWEEN_LEVELS).items():
            levels.setdefault(name, []).append(level)
    return with_factors(COMPARISON, levels)


def percent(share: float) -> str:
    """A share as the user gave it: `10%`, `2.5%`."""
    return f"{100 * share:.3g}%"


def slowed(rows: Sequence[Row], share: float) -> list[Row]:
    """Cells that are slower, beyond noise, by more than `share` of their rate before, and those
    that had a rate and have none now."""
    return [
        row
        for row in rows
        if (row["change"] == SLOWER and 1 - row["ratio"] > share)
        or (row["change"] == OTHER_STATUS and row["status_before"] == "ok")
    ]


def moved_between(before: Results, after: Results) -> list[Moved]:
    """What differs in machine, software and commit over the cells that both sets have; what several
    devices share is listed once."""
    pairs: dict[str, tuple[list[Row], list[Row]]] = {}
    for key in before.cells.keys() & after.cells.keys():
        old, new = pairs.setdefault(key[1], ([], []))
        old += before.cells[key]
        new += after.cells[key]
    devices: dict[tuple[str, str, str], list[str]] = {}
    for device, (old, new) in sorted(pairs.items()):
        shown = [(name.replace("_", " "), _of(old, name), _of(new, name)) for name in SHOWN]
        facts = [(name, _listed(a), _listed(b)) for name, a, b in shown if _differ(a, b)]
        for fact in (*facts, *software_moved(old, new)):
            devices.setdefault(fact, []).append(device)
    return [Moved(*fact, names) for fact, names in devices.items()]


def differing(before: Sequence[Row], after: Sequence[Row]) -> list[str]:
    """What differs between the runs of a cell, as the column `differs` names it.

    Every repeat has a spec of its own, so specs are compared repeat by repeat.
    """
    old, new = ({run["repeat"]: run.get("spec_digest") for run in runs} for runs in (before, after))
    pairs = [(old[k], new[k]) for k in old.keys() & new.keys()]
    found = ["spec"] if any(a != b for a, b in pairs if a and b) else []
    columns = WORK | {name: name for name in SHOWN}
    return found + [
        word for word, name in columns.items() if _differ(_of(before, name), _of(after, name))
    ]


def software_moved(before: Iterable[Row], after: Iterable[Row]) -> list[tuple[str, str, str]]:
    """Name and versions before and after, of all software whose versions differ."""
    old, new = ([r[SOFTWARE] for r in runs if r.get(SOFTWARE)] for runs in (before, after))
    if not (old and new):
        return []
    names = dict.fromkeys(name for software in (*old, *new) for name in software)
    versions = ((name, _versions(name, old), _versions(name, new)) for name in names)
    return [(name, _listed(a), _listed(b)) for name, a, b in versions if _differ(a, b)]


def _results_csv(place: Path) -> Path:
    name = Path(RESULTS_CSV).name
    if place.is_dir():
        files = (place / name, place / RESULTS / name)
        if found := next((file for file in files if file.is_file()), None):
            return found
        raise ValueError(f"{place}: there is no {name} in this folder, nor in a {RESULTS}/ of it")
    path = place.with_name(name) if place.name == Path(CELLS_CSV).name else place
    for file in (place, path):
        if not file.is_file():
            raise ValueError(f"{file}: there is no such file or folder")
    return path


def _fault(row: Row) -> str:
    """Why a row is not that of a run; empty where it is."""
    if row["status"] not in STATUSES:
        return f"status {row['status']!r} is not one of {', '.join(STATUSES)}"
    try:
        parse_levels(row["cell"], BETWEEN_LEVELS)
    except ValueError as error:
        return f"cell {row['cell']!r}: {error}"
    rate = row["samples_per_s"]
    if row["status"] == "ok" and not (rate and 0 < rate < math.inf):
        return f"samples_per_s of an ok run is {rate}; expected a positive number"
    return ""


def _software(run: Row, results_csv: Path) -> Software | None:
    """The software of a run, from its record beside `results_csv`; None where that is not there.

    The row names the record from the root of its clone. Beside a copy of the results lies a copy of
    the record, while the clone may have a newer one: a record with another start is not this run's.
    """
    path = Path(run.get("record") or "")
    if not path.is_relative_to(RESULTS):
        return None
    # results.csv of all studies lies in the folder of results, that of a study one below.
    for folder in (results_csv.parent, results_csv.absolute().parent.parent):
        try:
            # Not as a `Record`: records of other versions can be read too.
            found = json.loads((folder / path.relative_to(RESULTS)).read_bytes())["provenance"]
            if found.get("started_at") == run.get("started_at"):
                packages: Software = found.get("packages", {})
                below = {name: found.get(name.lower()) for name in BELOW}
                return packages and {n: v for n, v in below.items() if v} | packages
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue
    return None


def _row(key: Key, before: Sequence[Row], after: Sequence[Row], lines: Thresholds) -> Row:
    old, new = rates_of(before), rates_of(after)
    same = _same(before, after)
    row: Row = {
        **parse_levels(key[2], BETWEEN_LEVELS),
        **dict(zip(("study", "device", "cell"), key, strict=True)),
        "status_before": status_of(before) if before else "",
        "status_after": status_of(after) if after else "",
        "ok_runs_before": len(old),
        "ok_runs_after": len(new),
        "same_runs": same,
        "samples_per_s_before": median(old),
        "samples_per_s_after": median(new),
        "differs": ";".join(differing(before, after)),
        "software": ";".join(f"{n} {a} to {b}" for n, a, b in software_moved(before, after)),
    }
    if not (old and new):
        return row | _unmeasured(row, before, after)
    row |= _judged(row, old, new, lines)
    if same == len(before) == len(after):
        row["why"] = "The runs are the same in both: none was repeated."
    return row


def _judged(row: Row, old: Sequence[float], new: Sequence[float], lines: Thresholds) -> Row:
    """The ratio of a cell with rates in both sets, the change, and the reason.

    Rates differ where the greater median is more than `noise_share` above the lesser and, as far as
    there are runs for one, the interval does not contain 1. So swapped sets give the same answer,
    swapped.
    """
    found = ratio_interval(new, old, lines.confidence)
    lesser, greater = sorted((row["samples_per_s_before"], row["samples_per_s_after"]))
    apart = greater > lesser * (1 + lines.noise_share)
    low, high = found.low, found.high
    unsure = low is not None and high is not None and low <= 1 <= high
    why = f"{'More' if apart else 'No more'} than {percent(lines.noise_share)} apart"
    if low is None:
        why += "; a single run does not show noise"
    elif apart:
        why += f", {'but the interval contains' if unsure else 'and the interval excludes'} 1"
    change = EQUAL if unsure or not apart else SLOWER if found.value < 1 else FASTER
    names = ("ratio", "ratio_ci_low", "ratio_ci_high")
    return {"change": change, "why": f"{why}.", **dict(zip(names, found, strict=True))}


def _unmeasured(row: Row, before: Sequence[Row], after: Sequence[Row]) -> Row:
    """The change of a cell that lacks a rate before or after."""
    if not before or not after:
        change = ONLY_AFTER if after else ONLY_BEFORE
    else:
        change = NO_RATE if row["status_before"] == row["status_after"] else OTHER_STATUS
    causes = [
        cause_of(runs, status)
        for runs, status in ((after, row["status_after"]), (before, row["status_before"]))
        if status not in ("", "ok")
    ]
    return {"change": change, "why": next(filter(None, causes), "")}


def _same(before: Sequence[Row], after: Sequence[Row]) -> int:
    """How many runs of `after` are in `before`: start, host and spec identify a run."""
    names = ("started_at", "host", "spec_digest")
    old, new = (
        {tuple(r.get(n) for n in names) for r in runs if r.get("started_at")}
        for runs in (before, after)
    )
    return len(old & new)


def _versions(name: str, side: Iterable[Software]) -> set[str]:
    if name in BELOW:
        return {software[name] for software in side if name in software}
    return {software.get(name, NONE) for software in side}


def _of(runs: Iterable[Row], column: str) -> set[str]:
    """The known values."""
    return {str(value) for run in runs if (value := run.get(column)) not in (None, "")}


def _differ(old: set[str], new: set[str]) -> bool:
    """Whether two sets differ; where one side is unknown they do not."""
    return bool(old and new) and old != new


def _listed(values: Iterable[str]) -> str:
    return ", ".join(sorted(values))
