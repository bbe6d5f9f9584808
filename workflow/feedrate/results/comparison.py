"""Two sets of results, compared cell by cell: changes of speed, machine, software and commit."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from feedrate.config.study import Thresholds
from feedrate.config.values import BETWEEN_LEVELS, Level, parse_levels
from feedrate.core.paths import RESULTS, RESULTS_CSV
from feedrate.results.collect import KEY, outcomes
from feedrate.results.columns import COMPARISON, RUNS, Column, with_factors
from feedrate.results.files import Row, frame_of, read_csv, rows_of
from feedrate.results.record import RECORDS_NAME
from feedrate.results.schema import STATUSES
from feedrate.results.statistics import Noise, noise_by_device, ratio_interval

NEEDED = ("study", "device", "cell", "repeat", "status", "samples_per_s")
"""Columns without which there is nothing to compare."""
SLOWER, FASTER, EQUAL, OPEN = "slower", "faster", "no difference", "cannot tell"
OTHER_STATUS, ONLY_BEFORE, ONLY_AFTER = "other status", "only before", "only after"
NO_RATE = "no rate"
CHANGES = (SLOWER, FASTER, EQUAL, OPEN, OTHER_STATUS, ONLY_BEFORE, ONLY_AFTER, NO_RATE)

WORK = ("spec", "data", "code")
"""The facts that identify the measured work."""
FACTS = {
    **{"spec": "spec_digest", "data": "data_digest", "code": "source_digest"},
    **{name: name for name in ("device_model", "host", "cores_granted", "commit")},
}
"""The columns of the facts about a run besides its software, by their words in `differs`."""
SOFTWARE = "software"
"""The key of a run's further facts: versions by name of the driver, Python, the platform, firmware
and each package, and environment variables. None if its record is missing."""
NONE = "none"
"""The version of what a run with known software lacks."""
ABSENT: Row = {"status": "", "cause": "", "runs": 0, "ok_runs": 0, "rates": []}
"""A cell that a set lacks."""

Key = tuple[str, str, str]
Changes = dict[str, tuple[str, str]]
"""The values of facts before and after."""
_key: Callable[[Row], Key] = itemgetter(*KEY)


class Results(NamedTuple):
    """A set of results: its results.csv, and the runs in it, with SOFTWARE."""

    path: Path
    runs: list[Row]

    @property
    def started(self) -> list[Row]:
        """All runs that were started."""
        return [run for run in self.runs if run["status"] != "unsupported"]


def read_results(place: Path) -> Results:
    """Read the runs of a results.csv, or of that in a folder or in its `results/`. Raises OSError
    if the file cannot be read, and ValueError if it is missing or has no runs."""
    name = Path(RESULTS_CSV).name
    path = next(filter(Path.is_file, (place, place / name, place / RESULTS / name)), None)
    if path is None:
        raise ValueError(f"{place}: there is no {name} in this folder, nor in a {RESULTS}/ of it")
    rows = read_csv(path, RUNS)
    if not rows:
        raise ValueError(f"{path}: there are no runs in it")
    if lacking := [name for name in NEEDED if name not in rows[0]]:
        raise ValueError(f"{path}: no results of runs: there is no column {lacking[0]!r}")
    provenances = _provenances(path)
    for row in rows:
        if fault := _fault(row):
            raise ValueError(f"{path}: {' '.join(_key(row))}, repeat {row['repeat']}: {fault}")
        provenance = provenances.get((row.get("folder", ""), row.get("started_at", "")))
        row[SOFTWARE] = None if provenance is None else _versions(provenance)
    return Results(path, rows)


def compare(before: Results, after: Results, lines: Thresholds) -> list[Row]:
    """A row for each cell of either set, by study, device and ratio: slowest first, cells without a
    ratio last."""
    old, new = _cells(before.runs), _cells(after.runs)
    same = Counter(run[:3] for run in _identities(before.runs) & _identities(after.runs))
    differences = _differences(before.runs, after.runs)
    # The noise is that between repeats within either set, not between the sets.
    runs = [run | {"cell": f"before {run['cell']}"} for run in before.runs]
    runs += [run | {"cell": f"after {run['cell']}"} for run in after.runs]
    noise = noise_by_device(runs)
    both = {key for key in old.keys() & new.keys() if old[key]["rates"] and new[key]["rates"]}
    compared = Counter(key[:2] for key in both)
    rows = []
    for key in old.keys() | new.keys():
        was, now = old.get(key, ABSENT), new.get(key, ABSENT)
        row: Row = dict(zip(KEY, key, strict=True)) | parse_levels(key[2], BETWEEN_LEVELS)
        for side, cell in (("before", was), ("after", now)):
            row |= {f"{name}_{side}": cell[name] for name in ("status", "ok_runs")}
            row[f"samples_per_s_{side}"] = median(cell["rates"]) if cell["rates"] else None
        if key in both:
            row |= judge(was["rates"], now["rates"], lines, noise.get(key[:2]), compared[key[:2]])
            if same[key] == was["runs"] == now["runs"]:
                why = "The runs are the same in both: none was repeated."
                row |= {"change": EQUAL, "why": why}
        else:
            row |= _without_ratio(was, now)
        changes = differences.get(key, {})
        words = {name.split()[0] for name in changes}
        versions = (f"{n} {a} to {b}" for n, (a, b) in changes.items() if n.split()[0] not in FACTS)
        row |= {"same_runs": same[key], "changes": changes, "software": ";".join(versions)}
        row["differs"] = ";".join(word for word in FACTS if word in words)
        rows.append(row)
    # Without a ratio, a cell is the last one of its device.
    return sorted(rows, key=lambda r: (r["study"], r["device"], r["ratio"] or math.inf, r["cell"]))


def judge(
    old: Sequence[float],
    new: Sequence[float],
    lines: Thresholds,
    noise: Noise | None = None,
    comparisons: int = 1,
) -> Row:
    """The ratio of the rates of a cell in two sets, the change, and the reason. `noise` is that of
    all cells of both sets, and `comparisons` is the number of these cells.

    Rates differ where the greater median is more than `noise_share` above the lesser and, if the
    noise is known, the interval does not contain 1; if it does, we cannot tell. We cannot tell
    either where medians are closer, but the interval contains 1 and a ratio that would be a
    difference. So swapped sets give the same answer, swapped."""
    ratio, low, high = ratio_interval(new, old, lines.confidence, noise, comparisons)
    lesser, greater = sorted((median(old), median(new)))
    line = 1 + lines.noise_share
    apart = greater > lesser * line
    change = EQUAL
    if apart:
        change = SLOWER if ratio < 1 else FASTER
    why = f"{'More' if apart else 'No more'} than {percent(lines.noise_share)} apart"
    if low is None or high is None:
        why += "; without repeats the noise is unknown"
    elif apart and not low <= 1 <= high:
        why += ", and the interval excludes 1"
    elif apart:
        change = OPEN
        why += ", but the interval contains 1"
    elif low <= 1 <= high and (low * line < 1 or high > line):
        change = OPEN
        why += ", but the interval is wider"
    interval = {"ratio_ci_low": low, "ratio_ci_high": high}
    return {"change": change, "why": f"{why}.", "ratio": ratio, **interval}


def comparison_columns(rows: Sequence[Row]) -> list[Column]:
    """The columns of these rows, with those of their factors."""
    levels: dict[str, list[Level]] = defaultdict(list)
    for row in rows:
        for name, level in parse_levels(row["cell"], BETWEEN_LEVELS).items():
            levels[name].append(level)
    return with_factors(COMPARISON, levels)


def percent(share: float) -> str:
    """A share as the user gave it: `10%`, `2.5%`."""
    return f"{100 * share:.3g}%"


def slowed(rows: Sequence[Row], share: float) -> list[Row]:
    """The cells that are slower, beyond noise, by more than `share` of their rate before, and the
    cells that had a rate and have none now."""
    return [
        row
        for row in rows
        if (row["change"] == SLOWER and 1 - row["ratio"] > share)
        or (row["change"] == OTHER_STATUS and row["status_before"] == "ok")
    ]


def moved_between(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    """The differences in machine, software and commit between cells that both sets have: what
    differs, its values before and after, and the devices that share it."""
    devices: dict[Key, dict[str, None]] = defaultdict(dict)
    for row in rows:
        for name, values in row["changes"].items():
            if name.split()[0] not in WORK:
                devices[name, *values][row["device"]] = None
    return [(*fact, ", ".join(names)) for fact, names in devices.items()]


def _differences(before: Sequence[Row], after: Sequence[Row]) -> dict[Key, Changes]:
    """The facts whose values differ between the runs of each cell of two sets. Where one side does
    not know a fact, it does not differ."""
    software = dict.fromkeys(name for run in [*before, *after] for name in run.get(SOFTWARE) or {})
    old, new = _values(before, software), _values(after, software)
    changes: dict[Key, Changes] = defaultdict(dict)
    for (cell, name), values in old.items():
        others = new.get((cell, name), values)
        if others != values:
            changes[cell][name] = ", ".join(sorted(values)), ", ".join(sorted(others))
    return changes


def _values(runs: Iterable[Row], software: Iterable[str]) -> dict[tuple[Key, str], set[str]]:
    """The known values of each fact of each cell. `software` names all versions that either set
    knows."""
    values: dict[tuple[Key, str], set[str]] = defaultdict(set)
    for run in runs:
        facts = {name: run.get(column) for name, column in FACTS.items()}
        # Seeds, and so specs, differ between repeats.
        facts[f"spec {run['repeat']}"] = facts.pop("spec")
        if versions := run.get(SOFTWARE):
            facts |= {name: versions.get(name, NONE) for name in software}
        for name, value in facts.items():
            if value not in (None, ""):
                values[_key(run), name].add(str(value))
    return values


def _fault(row: Row) -> str:
    """The reason why a row does not describe a run; empty if it does."""
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


def _provenances(results_csv: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The provenance in the records near `results_csv`, by the run's folder and start. Lines that
    are no records are left out."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    # results.csv of all studies lies in the folder of results, that of a study one below.
    folder, name = results_csv.parent, RECORDS_NAME
    for file in (*folder.glob(f"*/{name}"), *folder.glob(f"*/*/{name}")):
        for line in file.read_bytes().splitlines():
            with suppress(ValueError, LookupError, TypeError, RecursionError):
                # Not as a `Record`: records of other versions can be read too.
                record = json.loads(line)
                provenance = dict(record["provenance"])
                found[record["folder"], provenance["started_at"]] = provenance
    return found


def _versions(provenance: dict[str, Any]) -> dict[str, str]:
    """The known versions in a record's provenance, by name."""
    if not provenance.get("packages"):
        return {}
    versions = {name: provenance.get(name.lower()) for name in ("driver", "Python", "platform")}
    for key, before in (("firmware", "firmware "), ("environment", "variable "), ("packages", "")):
        part = provenance.get(key)
        if isinstance(part, dict):
            versions |= {f"{before}{name}": version for name, version in part.items()}
    return {name: version for name, version in versions.items() if version}


def _cells(runs: list[Row]) -> dict[tuple[str, str, str], Row]:
    """Status, cause, numbers of runs, and `rates` of the ok runs (samples/s), by KEY."""
    table = outcomes(frame_of(runs, with_factors(RUNS, {}))).reset_index()
    cells = {_key(cell): cell | {"rates": []} for cell in rows_of(table)}
    for run in runs:
        if run["status"] == "ok":
            cells[_key(run)]["rates"].append(run["samples_per_s"])
    return cells


def _identities(runs: Iterable[Row]) -> set[tuple[Any, ...]]:
    """Start, host and spec, after KEY: they identify a run that both sets have."""
    names = ("started_at", "host", "spec_digest")
    return {(*_key(run), *map(run.get, names)) for run in runs if run.get("started_at")}


def _without_ratio(old: Row, new: Row) -> Row:
    """The change of a cell that lacks a rate in one set or in both, and its reason."""
    if not (old["status"] and new["status"]):
        change = ONLY_AFTER if new["status"] else ONLY_BEFORE
    else:
        change = NO_RATE if old["status"] == new["status"] else OTHER_STATUS
    causes = [cell["cause"] for cell in (new, old) if cell["status"] != "ok"]
    return {"change": change, "why": next(filter(None, causes), ""), "ratio": None}
