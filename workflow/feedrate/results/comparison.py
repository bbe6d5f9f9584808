"""Two sets of results, compared cell by cell: changes of speed, machine, software and commit."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pandas as pd

from feedrate.config.study import Thresholds
from feedrate.config.values import BETWEEN_LEVELS, parse_levels
from feedrate.core.paths import CELLS_CSV, RESULTS, RESULTS_CSV
from feedrate.results.collect import KEY, outcomes
from feedrate.results.columns import COMPARISON, RUNS, Column, with_factors
from feedrate.results.crate import results_of
from feedrate.results.files import Row, frame_of, read_csv, rows_of
from feedrate.results.schema import STATUSES
from feedrate.results.statistics import Noise, noise_by_device, ratio_interval

NEEDED = ("study", "device", "cell", "repeat", "status", "samples_per_s")
"""Columns without which there is nothing to compare."""
SLOWER, FASTER, EQUAL, OPEN = "slower", "faster", "no difference", "cannot tell"
OTHER_STATUS, ONLY_BEFORE, ONLY_AFTER = "other status", "only before", "only after"
NO_RATE = "no rate"
COMPARED = (SLOWER, FASTER, EQUAL, OPEN)
"""The changes that have a ratio."""

SOFTWARE = "software"
"""The column of a run's versions by name: of the driver, Python, the platform and each package; and
the values of environment variables. None if its record is missing, empty if the job reported no
software."""
WORK = {"data": "data_digest", "code": "source_digest"}
"""Columns that, besides the spec, identify the measured work; by their word in `differs`."""
SHOWN = ("device_model", "host", "cores_granted", "commit")
"""Columns with the machine and the commit of a run."""
BELOW = ("driver", "Python", "platform")
"""Software that is compared where it is known; packages are known completely or not at all."""
FIRMWARE = "firmware "
"""Before the name of firmware, which is compared where it is known too."""
VARIABLE = "variable "
"""Before the name of an environment variable; all are known if one is."""
NONE = "none"
"""The version of a package that is not installed, and the value of a variable that is not set."""


class Results(NamedTuple):
    """A set of results: its results.csv, and the runs in it, with SOFTWARE."""

    path: Path
    runs: pd.DataFrame

    @property
    def started(self) -> list[Row]:
        """All runs that were started."""
        return rows_of(self.runs[self.runs["status"] != "unsupported"])


def read_results(place: Path) -> Results:
    """Read the runs of an archive, or of what `results_csv` takes. Raises OSError if the file
    cannot be read, and ValueError if it is missing or has no runs."""
    if place.suffix == ".zip":
        with results_of(place) as folder:
            return read_results(folder)._replace(path=place)
    path = results_csv(place)
    rows = read_csv(path, RUNS)
    if not rows:
        raise ValueError(f"{path}: there are no runs in it")
    if lacking := [name for name in NEEDED if name not in rows[0]]:
        raise ValueError(f"{path}: no results of runs: there is no column {lacking[0]!r}")
    for row in rows:
        if fault := _fault(row):
            names = " ".join(row[name] for name in KEY)
            raise ValueError(f"{path}: {names}, repeat {row['repeat']}: {fault}")
    return Results(path, run_frame([row | {SOFTWARE: _software(row, path)} for row in rows]))


def run_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """The table of runs in `Results`."""
    return frame_of(rows, [*with_factors(RUNS, {}), Column(SOFTWARE, "text", "", "")])


def compare(before: Results, after: Results, lines: Thresholds) -> list[Row]:
    """A row for each cell of either set, by study, device and ratio: slowest first, cells without a
    ratio last."""
    both = before.runs, after.runs
    old, new = map(_cells, both)
    cells = old.add_suffix("_before").join(new.add_suffix("_after"), how="outer")
    # Start, host and spec identify a run that both sets have.
    names = [*KEY, "started_at", "host", "spec_digest"]
    dated = (runs.loc[runs["started_at"].astype(bool), names].drop_duplicates() for runs in both)
    cells["same_runs"] = pd.merge(*dated).groupby(KEY).size()
    specs = _moved(*both, [*KEY, "repeat"], ["spec_digest"]).drop_duplicates(KEY)
    others = pd.concat([specs, _moved(*both, KEY, [*WORK.values(), *SHOWN])])
    words = others["what"].replace({"spec_digest": "spec"} | {c: word for word, c in WORK.items()})
    cells["differs"] = words.groupby([others[name] for name in KEY]).agg(";".join)
    versions = _software_moved(*both, KEY)
    changes = versions["what"] + " " + versions["before"] + " to " + versions["after"]
    cells["software"] = changes.groupby([versions[name] for name in KEY]).agg(";".join)
    counts = ["runs_before", "runs_after", "ok_runs_before", "ok_runs_after", "same_runs"]
    texts = ["status_before", "status_after", "differs", "software"]
    cells[counts] = cells[counts].fillna(0).astype(int)
    cells[texts] = cells[texts].fillna("")
    # The noise is that between repeats within either set, not between the sets.
    sides = [runs.assign(cell=f"{side} " + runs["cell"]) for side, runs in enumerate(both)]
    noise = noise_by_device(rows_of(pd.concat(sides)))
    listed = [(row, (row["study"], row["device"])) for row in rows_of(cells.reset_index())]
    compared = Counter(of for row, of in listed if row["rates_before"] and row["rates_after"])
    rows = [
        row
        | parse_levels(row["cell"], BETWEEN_LEVELS)
        | _change(row, lines, noise.get(of), compared[of])
        for row, of in listed
    ]
    table = pd.DataFrame(rows, dtype=object)  # object, so that levels keep their types
    return rows_of(table.sort_values(["study", "device", "ratio", "cell"]))


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
    found = ratio_interval(new, old, lines.confidence, noise, comparisons)
    lesser, greater = sorted((median(old), median(new)))
    apart = greater > lesser * (1 + lines.noise_share)
    low, high = found.low, found.high
    unsure = low is not None and high is not None and low <= 1 <= high
    wide = unsure and max(1 / (low or 1.0), high or 1.0) > 1 + lines.noise_share
    why = f"{'More' if apart else 'No more'} than {percent(lines.noise_share)} apart"
    if low is None:
        why += "; without repeats the noise is unknown"
    elif apart:
        why += f", {'but the interval contains' if unsure else 'and the interval excludes'} 1"
    elif wide:
        why += ", but the interval is wider"
    change = SLOWER if found.value < 1 else FASTER
    if unsure or not apart:
        change = OPEN if apart or wide else EQUAL
    names = ("ratio", "ratio_ci_low", "ratio_ci_high")
    return {"change": change, "why": f"{why}.", **dict(zip(names, found, strict=True))}


def comparison_columns(rows: Sequence[Row]) -> list[Column]:
    """The columns of these rows, with those of their factors."""
    levels = pd.DataFrame([parse_levels(row["cell"], BETWEEN_LEVELS) for row in rows], dtype=object)
    return with_factors(COMPARISON, {name: levels[name].dropna() for name in levels})


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


def moved_between(before: Results, after: Results) -> list[tuple[str, ...]]:
    """The differences in machine, software and commit between the cells that both sets have: what
    differs, its values before and after, and the devices that share it."""
    keys = [pd.MultiIndex.from_frame(results.runs[KEY]) for results in (before, after)]
    shared = before.runs[keys[0].isin(keys[1])], after.runs[keys[1].isin(keys[0])]
    shown = _moved(*shared, ["device"], SHOWN)
    shown["what"] = shown["what"].str.replace("_", " ")
    facts = pd.concat([shown, _software_moved(*shared, ["device"])])
    facts = facts.sort_values("device", kind="stable")
    groups = facts.groupby(["what", "before", "after"], sort=False)["device"]
    return [(*fact, ", ".join(devices)) for fact, devices in groups]


def _moved(
    before: pd.DataFrame, after: pd.DataFrame, by: Sequence[str], names: Iterable[str]
) -> pd.DataFrame:
    """The columns among `names` whose values differ between the runs of each group of two sets: the
    group's values in the columns `by`, the column in `what`, and its known values `before` and
    `after`. Where one side has none, nothing differs."""
    sides = []
    for runs in (before, after):
        facts = runs.melt(by, list(names), "what", "value").dropna()
        facts["value"] = facts["value"].astype(str)
        known = facts[facts["value"] != ""].groupby([*by, "what"], sort=False)["value"]
        sides.append(known.agg(lambda values: ", ".join(sorted(set(values)))))
    both = pd.concat(sides, axis="columns", keys=["before", "after"], join="inner")
    moved = both[both["before"] != both["after"]].reset_index()
    return moved.astype(dict.fromkeys(("what", "before", "after"), str))


def _software_moved(before: pd.DataFrame, after: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """The software whose versions differ, in the same form. Runs whose software is unknown are left
    out. A package or a variable that a run lacks has the version NONE."""
    known = [runs[runs[SOFTWARE].astype(bool)] for runs in (before, after)]
    tables = [pd.DataFrame(runs[SOFTWARE].tolist(), runs.index) for runs in known]
    names = list(dict.fromkeys(name for table in tables for name in table))
    variables = [name for name in names if str(name).startswith(VARIABLE)]
    partly = (*BELOW, FIRMWARE, VARIABLE)
    absent = {name: NONE for name in names if not str(name).startswith(partly)}
    versions = []
    for runs, table in zip(known, tables, strict=True):
        full = table.reindex(columns=names).astype(object).fillna(absent)
        told = full[variables].notna().any(axis="columns")
        full.loc[told, variables] = full.loc[told, variables].fillna(NONE)
        versions.append(runs[KEY].join(full))
    return _moved(versions[0], versions[1], by, names)


def results_csv(place: Path) -> Path:
    """The results.csv of a folder of results, of a clone that has one, or of a file in it, such as
    cells.csv: intervals need single runs. Raises ValueError if there is none."""
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


def _software(run: Row, results_csv: Path) -> dict[str, str] | None:
    """The software of a run, from its record near `results_csv`; None if that is missing. Raises
    ValueError if it is no mapping of names to versions."""
    if (record := record_of(run, results_csv)) is None:
        return None
    found: dict[str, Any] = record["provenance"]
    for key in ("packages", "firmware", "environment"):
        if not isinstance(found.get(key) or {}, dict):
            place = f"{run['record']} near {results_csv}: provenance.{key}"
            raise ValueError(f"{place}: expected versions by name")
    packages: dict[str, str] = found.get("packages", {})
    below = {name: found.get(name.lower()) for name in BELOW}
    below |= {FIRMWARE + name: version for name, version in (found.get("firmware") or {}).items()}
    below |= {VARIABLE + name: value for name, value in (found.get("environment") or {}).items()}
    return packages and {n: v for n, v in below.items() if v} | packages


def record_of(run: Row, results_csv: Path) -> dict[str, Any] | None:
    """The record of a run near `results_csv`, as it is in the file; None if that is missing. A copy
    of the results has a copy of the record, while the clone, from whose root the row has the path,
    may have a newer one. A record with another start is not this run's."""
    path = Path(run.get("record") or "")
    if not path.is_relative_to(RESULTS):
        return None
    # results.csv of all studies lies in the folder of results, that of a study one below.
    for folder in (results_csv.parent, results_csv.absolute().parent.parent):
        try:
            # Not as a `Record`: records of other versions can be read too.
            found = dict(json.loads((folder / path.relative_to(RESULTS)).read_bytes()))
            if found["provenance"].get("started_at") == run.get("started_at"):
                return found
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            continue
    return None


def _cells(runs: pd.DataFrame) -> pd.DataFrame:
    """Status, cause, numbers of runs, and median and `rates` of the ok runs (samples/s), by KEY."""
    ok = runs[runs["status"] == "ok"].groupby(KEY)["samples_per_s"]
    cells = outcomes(runs)[["status", "cause", "runs", "ok_runs"]]
    return cells.assign(samples_per_s=ok.median(), rates=ok.agg(list))


def _change(row: Row, lines: Thresholds, noise: Noise | None, comparisons: int) -> Row:
    """The change of a cell and its reason; the ratio where both sets have rates."""
    if row["rates_before"] and row["rates_after"]:
        found = judge(row["rates_before"], row["rates_after"], lines, noise, comparisons)
        if row["same_runs"] == row["runs_before"] == row["runs_after"]:
            why = "The runs are the same in both: none was repeated."
            found |= {"change": EQUAL, "why": why}
        return found
    old, new = row["status_before"], row["status_after"]
    if not (old and new):
        change = ONLY_AFTER if new else ONLY_BEFORE
    else:
        change = NO_RATE if old == new else OTHER_STATUS
    causes = [row[f"cause_{side}"] for side in ("after", "before") if row[f"status_{side}"] != "ok"]
    return {"change": change, "why": next(filter(None, causes), ""), "ratio": None}
