"""Two sets of results, compared cell by cell: changes of speed, machine, software and commit. A set
is in a folder, or has the runs in runs/ with one code and one software."""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from feedrate.config.project import load_project
from feedrate.config.study import Thresholds
from feedrate.config.values import BETWEEN_LEVELS, load, parse_levels
from feedrate.core import paths
from feedrate.core.errors import ExpectedError
from feedrate.results.assemble import read_run
from feedrate.results.collect import KEY, reject_mixed_specs
from feedrate.results.files import Row
from feedrate.results.record import RECORDS_NAME, read_records
from feedrate.results.schema import STATUSES
from feedrate.results.statistics import Noise, noise_by_device, ratio_interval
from feedrate.results.study_plan import PlannedRun

SLOWER, FASTER, EQUAL, OPEN = "slower", "faster", "no difference", "cannot tell"
OTHER_STATUS, ONLY_BEFORE, ONLY_AFTER = "other status", "only before", "only after"
NO_RATE = "no rate"
CHANGES = (SLOWER, FASTER, EQUAL, OPEN, OTHER_STATUS, ONLY_BEFORE, ONLY_AFTER, NO_RATE)

WORK = {"spec": "spec_digest", "data": "data_digest", "code": "source_digest"}
MACHINE = ("device_model", "host", "cores_granted", "commit")
"""The facts about a run besides its software: the first identify the measured work."""

Changes = dict[str, tuple[str, str]]  # the values of facts before and after
Run = dict[str, Any]
"""A run of a set: where it stands in its study, and what its provenance says, by name."""
IDENTITY = re.compile(r"[0-9a-f]{8}(-\d+)?")
"""A set of runs is called by the identity of one of them, as it stands in the run's folder."""

SOFTWARE: Run = {"packages": None, "driver": None, "device_model": None}
"""The facts that the runs of a set share, besides the code."""
_software: Callable[[Run], Any] = itemgetter(*SOFTWARE)


def read_results(place: str) -> list[Run]:
    """The measured runs of the records in a folder or in its `results/`, or of the set in runs/
    with a run of this identity. Raises ExpectedError if there are none."""
    records = []
    if IDENTITY.fullmatch(place) and not Path(place).exists():
        runs = run_set(read_runs(Path(paths.RUNS)), place)
        if not runs:
            raise ExpectedError(f"{place}: {paths.RUNS}/ has no set of this name")
        project = load_project(Path(), load(Path("config/config.yaml"), dict[str, Any]))
        for run in runs:
            device = project.devices.get(run["device"])
            if device is None:
                registry = f"{run['folder']}: config/devices.yaml"
                raise ExpectedError(f"{registry} has no device {run['device']}")
            levels = parse_levels(run["cell"], BETWEEN_LEVELS)
            fields = {name: run[name] for name in ("device", "cell", "repeat", "folder")}
            records.append(read_run(run["study"], PlannedRun(levels=levels, **fields), device))
    else:
        for folder in ("", "*/", f"{paths.RESULTS}/*/"):
            for file in Path(place).glob(f"{folder}*/{RECORDS_NAME}"):
                records += read_records(file.parents[1], file.parent.name)
        if not records:
            raise ExpectedError(f"{place}: neither a folder with results nor a set of runs")
    rows = []
    for record in reject_mixed_specs(records):
        row: Run = msgspec.to_builtins(record.provenance)
        row |= {name: getattr(record, name) for name in (*KEY, "repeat", "status", "cause")}
        for name in ("samples_per_s", "block_noise"):
            row[name] = getattr(record.measurement, name, None)
        rows.append(row)
    return rows


def read_runs(folder: Path) -> list[Run]:
    """The runs that have ended, the newest first. Their numbers are not read."""
    runs = []
    for outcome in folder.glob(f"*/*/*/rep*/{paths.OUTCOME_NAME}"):
        facts = SOFTWARE | {"source_digest": "", "call": "", "started_at": ""}
        for file in (outcome.with_name(paths.EVENTS_NAME), outcome):
            with suppress(OSError, ValueError):  # a job may end before its first event
                text = file.read_text(encoding="utf-8")
                facts |= json.loads(text if file == outcome else text.partition("\n")[0])
        study, device, cell, name = outcome.parts[-5:-1]
        match = paths.RUN_FOLDER.fullmatch(name)
        if match:
            facts |= {"study": study, "device": device, "cell": cell}
            facts |= {"repeat": int(match["repeat"]), "name": name.partition("-")[2]}
            runs.append(facts | {"folder": str(outcome.parent)})
    return sorted(runs, key=itemgetter("started_at"), reverse=True)


def run_set(runs: Sequence[Run], name: str) -> list[Run]:
    """The runs with the same code and software as the run `name`, of each repeat of each cell the
    newest; none if there is no such run. A run's digest is that of the code which it imports, so
    the set has the code of all calls of Snakemake that measured with this run's."""
    first = next((run for run in runs if run["name"] == name), None)
    if first is None:
        return []
    code, equals = first["source_digest"], [r for r in runs if _software(r) == _software(first)]
    calls = {run["call"] for run in equals if run["source_digest"] == code} - {""}
    codes = {run["source_digest"] for run in equals if run["call"] in calls} | {code}
    newest: dict[Any, Run] = {}
    for run in runs:
        is_untried = run["packages"] is None and run["call"] in calls
        if is_untried or (_software(run) == _software(first) and run["source_digest"] in codes):
            newest.setdefault((*map(run.get, KEY), run["repeat"]), run)
    return list(newest.values())


def run_sets(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """All sets, the newest first. A set is called by its first run."""
    listed: set[str] = set()
    for run in runs:
        if run["packages"] and run["folder"] not in listed:
            members = {member["folder"]: member for member in run_set(runs, run["name"])}
            if run["folder"] in members:  # else a newer attempt counts
                listed |= members.keys()
                yield [members.pop(run["folder"]), *members.values()]


def compare(before: Sequence[Run], after: Sequence[Run], thresholds: Thresholds) -> list[Row]:
    """A row for each cell of either set, by study, device and ratio: slowest first, cells without a
    ratio last."""
    cells: dict[tuple[str, str, str], dict[str, list[Run]]] = {}
    renamed = []  # so that noise is between repeats within a set, not between the sets
    for side, runs in (("before", before), ("after", after)):
        for run in runs:
            sides = cells.setdefault(itemgetter(*KEY)(run), {"before": [], "after": []})
            sides[side].append(run)
            renamed.append(run | {"cell": f"{side} {run['cell']}"})
    noise = noise_by_device(renamed)
    numbers = Counter(key[:2] for key, sides in cells.items() if all(map(_rates, sides.values())))
    rows = []
    for key, sides in cells.items():
        row: Row = dict(zip(KEY, key, strict=True)) | parse_levels(key[2], BETWEEN_LEVELS)
        for side, runs in sides.items():
            statuses, rates = (run["status"] for run in runs), _rates(runs)
            row[f"status_{side}"] = min(statuses, key=STATUSES.index, default="")
            row[f"ok_runs_{side}"] = len(rates)
            row[f"samples_per_s_{side}"] = median(rates) if rates else None
        old, new = sides["before"], sides["after"]
        row["same_runs"] = len(_starts(old) & _starts(new))
        changes = row["changes"] = differences(old, new)
        words = {fact.split()[0] for fact in changes if not _is_software(fact)}
        row["differs"] = ";".join(word for word in (*WORK, *MACHINE) if word in words)
        row["software"] = ";".join(
            f"{fact} {was} to {now}" for fact, (was, now) in changes.items() if _is_software(fact)
        )
        if row["ok_runs_before"] and row["ok_runs_after"]:
            device = key[:2]
            row |= judge(_rates(old), _rates(new), thresholds, noise.get(device), numbers[device])
            if row["same_runs"] == len(old) == len(new):
                row["change"] = EQUAL  # none was repeated
        else:
            row["change"] = NO_RATE if row["status_before"] == row["status_after"] else OTHER_STATUS
            if not (old and new):
                row["change"] = ONLY_AFTER if new else ONLY_BEFORE
            causes = (run["cause"] for run in (*new, *old) if run["status"] != "ok")
            row |= {"ratio": None, "cause": next(filter(None, causes), "")}
        rows.append(row)
    # Without a ratio, a cell is the last one of its device.
    return sorted(rows, key=lambda r: (r["study"], r["device"], r["ratio"] or math.inf, r["cell"]))


def judge(
    old: Sequence[float],
    new: Sequence[float],
    thresholds: Thresholds,
    noise: Noise | None = None,
    comparisons: int = 1,
) -> Row:
    """The ratio of the rates of a cell in two sets, its interval and the change, by the table in
    docs/results.md. `noise` is that of all cells of both sets, and `comparisons` is the number of
    these cells. Swapped sets give the same answer, swapped."""
    ratio, low, high = ratio_interval(new, old, thresholds.confidence, noise, comparisons)
    slower, faster = sorted((median(old), median(new)))
    least = 1 + thresholds.noise_share
    change = EQUAL
    if faster > slower * least:
        change = SLOWER if ratio < 1 else FASTER
    if low is not None and high is not None and low <= 1 <= high:
        may_differ = low * least < 1 or high > least
        change = OPEN if change != EQUAL or may_differ else EQUAL
    return {"change": change, "ratio": ratio, "ratio_ci_low": low, "ratio_ci_high": high}


def slowed(rows: Sequence[Row], share: float) -> list[Row]:
    """The cells that are slower, beyond noise, by more than `share` of their rate before, and the
    cells that had a rate and have none now."""
    return [
        row
        for row in rows
        if (row["change"] == SLOWER and 1 - row["ratio"] > share)
        or (row["change"] == OTHER_STATUS and row["status_before"] == "ok")
    ]


def differences(before: Iterable[Run], after: Iterable[Run]) -> Changes:
    """The facts whose values differ between runs of two sets, as far as both sides know them;
    software that only one side names is `none` on a side that names any."""
    old, new = _values(before), _values(after)
    is_known = any(map(_is_software, old)) and any(map(_is_software, new))
    changes: Changes = {}
    for fact in dict.fromkeys([*old, *new]):
        default = {"none"} if is_known and _is_software(fact) else set()
        was, now = old.get(fact, default), new.get(fact, default)
        if was and now and was != now:
            changes[fact] = ", ".join(sorted(was)), ", ".join(sorted(now))
    return changes


def _values(runs: Iterable[Run]) -> dict[str, set[str]]:
    """The known values of each fact about runs: a word of WORK, with the repeat after `spec`, which
    has another seed; a word of MACHINE; or software, by name."""
    values: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        facts: Row = {word: run.get(column) for word, column in WORK.items()}
        facts[f"spec {run['repeat']}"] = facts.pop("spec")
        facts |= {word: run.get(word) for word in (*MACHINE, "driver", "python", "platform")}
        for kind in ("firmware", "environment"):
            facts |= {f"{kind} {name}": value for name, value in (run.get(kind) or {}).items()}
        facts |= run.get("packages") or {}
        for name, value in facts.items():
            if value not in (None, ""):
                values[name].add(str(value))
    return values


def _is_software(fact: str) -> bool:
    """Whether a fact has no word in `differs`."""
    return fact.split()[0] not in (*WORK, *MACHINE)


def _rates(runs: Iterable[Run]) -> list[float]:
    return [run["samples_per_s"] for run in runs if run["status"] == "ok"]


def _starts(runs: Iterable[Run]) -> set[tuple[Any, ...]]:
    """Repeat, start, host and spec, which identify a run of a cell that both sets have."""
    names = ("repeat", "started_at", "host", "spec_digest")
    return {tuple(map(run.get, names)) for run in runs if run.get("started_at")}
