"""Two sets of results held against each other, cell by cell: what became slower, what faster."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from feedrate.config.study import Thresholds
from feedrate.config.values import BETWEEN_LEVELS, parse_levels
from feedrate.core.paths import CELLS_CSV, RESULTS, RESULTS_CSV
from feedrate.results.cells import STATUSES, cause_of, rates_of, status_of
from feedrate.results.columns import COMPARISON, RUNS, Column, with_factors
from feedrate.results.differences import (
    SOFTWARE,
    Moved,
    differing,
    moved,
    software_moved,
    software_of,
)
from feedrate.results.statistics import median, ratio_interval
from feedrate.results.tables import level_kind, read_rows

Row = dict[str, Any]
Key = tuple[str, str, str]
"""Study, device, cell."""

NEEDED = ("study", "device", "cell", "repeat", "status", "samples_per_s")
"""Columns without which there is nothing to compare."""
SLOWER, FASTER, EQUAL = "slower", "faster", "no difference"
OTHER_STATUS, ONLY_BEFORE, ONLY_AFTER = "other status", "only before", "only after"
NO_RATE = "no rate"
COMPARED = (SLOWER, FASTER, EQUAL)
"""The changes that rest on a ratio."""


class Results(NamedTuple):
    """A set of results: its results.csv, and the runs that this holds, by cell."""

    path: Path
    cells: Mapping[Key, Sequence[Row]]

    @property
    def runs(self) -> list[Row]:
        """All runs that were started."""
        return [
            run for runs in self.cells.values() for run in runs if run["status"] != "unsupported"
        ]


def read_results(place: Path) -> Results:
    """Read the runs of a folder of results, of a clone that has one, or of a file in it.

    Of cells.csv the results.csv beside it is read: intervals need the single runs. Raises OSError
    and ValueError, each with a sentence, where there is none or it is not one.
    """
    path = _results_csv(place)
    rows = read_rows(path, RUNS)
    if not rows:
        raise ValueError(f"{path}: there are no runs in it")
    if lacking := [name for name in NEEDED if name not in rows[0]]:
        raise ValueError(f"{path}: no results of runs: there is no column {lacking[0]!r}")
    cells: dict[Key, list[Row]] = {}
    for row in rows:
        key = (row["study"], row["device"], row["cell"])
        if wrong := _wrong(row):
            raise ValueError(f"{path}: {' '.join(key)}, repeat {row['repeat']}: {wrong}")
        cells.setdefault(key, []).append(row | {SOFTWARE: software_of(row, path)})
    return Results(path, cells)


def compare(before: Results, after: Results, lines: Thresholds) -> list[Row]:
    """A row for each cell of either set, by study, device and ratio, slowest first; last in a
    device come those without a ratio."""
    keys = dict.fromkeys((*before.cells, *after.cells))
    rows = [_row(key, before.cells.get(key, ()), after.cells.get(key, ()), lines) for key in keys]
    return sorted(rows, key=_place)


def moved_between(before: Results, after: Results) -> list[Moved]:
    """What else differs, over the cells that both sets have."""
    pairs: dict[str, tuple[list[Row], list[Row]]] = {}
    for key in before.cells.keys() & after.cells.keys():
        old, new = pairs.setdefault(key[1], ([], []))
        old += before.cells[key]
        new += after.cells[key]
    return moved(dict(sorted(pairs.items())))


def comparison_columns(rows: Sequence[Row]) -> list[Column]:
    """The columns of these rows, with those of their factors."""
    levels: dict[str, list[Any]] = {}
    for row in rows:
        for name, level in _levels(row["cell"]).items():
            levels.setdefault(name, []).append(level)
    return with_factors(COMPARISON, {name: level_kind(found) for name, found in levels.items()})


def percent(share: float) -> str:
    """A share as the user gave it: `10%`, `2.5%`."""
    return f"{100 * share:.3g}%"


def slowed(rows: Sequence[Row], share: float) -> list[Row]:
    """Cells that are slower, beyond noise, by more than `share` of their rate before, and those
    that had a rate and ended in none."""
    return [
        row
        for row in rows
        if (row["change"] == SLOWER and 1 - row["ratio"] > share)
        or (row["change"] == OTHER_STATUS and row["status_before"] == "ok")
    ]


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


def _wrong(row: Row) -> str:
    """Why a row is none of a run; empty where it is one."""
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


def _levels(cell: str) -> dict[str, Any]:
    return dict(parse_levels(cell, BETWEEN_LEVELS))


def _row(key: Key, before: Sequence[Row], after: Sequence[Row], lines: Thresholds) -> Row:
    old, new = rates_of(before), rates_of(after)
    same = _same(before, after)
    row: Row = {
        **_levels(key[2]),
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
        row["why"] = "The runs are the same in both: none was made again."
    return row


def _judged(row: Row, old: Sequence[float], new: Sequence[float], lines: Thresholds) -> Row:
    """The ratio of a cell that has rates in both, the word for it, and why it is that.

    A difference is one where both say so: a greater median that is more than `noise_share` above
    the lesser, and an interval without 1, as far as there are runs for one. So swapped sets get the
    same answer, swapped.
    """
    found = ratio_interval(new, old, lines.confidence)
    lesser, greater = sorted((row["samples_per_s_before"], row["samples_per_s_after"]))
    apart = greater > lesser * (1 + lines.noise_share)
    low, high = found.low, found.high
    unsure = low is not None and high is not None and low <= 1 <= high
    why = f"{'More' if apart else 'No more'} than {percent(lines.noise_share)} apart"
    if low is None:
        why += "; one run alone cannot tell noise"
    elif apart:
        why += ", but the interval holds 1" if unsure else ", and the interval leaves out 1"
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
    """How many runs of `after` are in `before`: a run is known by its start, host and spec."""
    names = ("started_at", "host", "spec_digest")
    known = [
        {tuple(r.get(n) for n in names) for r in runs if r.get("started_at")}
        for runs in (before, after)
    ]
    return len(known[0] & known[1])


def _place(row: Row) -> tuple[Any, ...]:
    ratio = row.get("ratio")
    return row["study"], row["device"], math.inf if ratio is None else ratio, row["cell"]
