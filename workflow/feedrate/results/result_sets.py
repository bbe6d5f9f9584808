"""Sets of results: those in a folder, or the runs in runs/ with one code and one software."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.devices import Device
from feedrate.config.project import load_project
from feedrate.config.values import BETWEEN_LEVELS, load, parse_levels
from feedrate.core import paths
from feedrate.core.errors import ExpectedError
from feedrate.results.assemble import read_run
from feedrate.results.collect import of_one_spec
from feedrate.results.record import RECORDS_NAME, Record, read_records
from feedrate.results.study_plan import PlannedRun

Run = dict[str, Any]
"""A run of a set: where it stands in its study, and what its provenance says, by name."""
IDENTITY = re.compile(r"[0-9a-f]{8}(-\d+)?")
"""A set of runs is called by the identity of one of them, as it stands in the run's folder."""
_FOLDER = re.compile(rf"rep(\d+)-({IDENTITY.pattern})")
_slot: Callable[[Run], Any] = itemgetter("study", "device", "cell", "repeat")
_software: Callable[[Run], Any] = itemgetter("packages", "driver", "device_model")
SOFTWARE: Run = {"packages": None, "driver": None, "device_model": None}


def read_results(place: str) -> list[Run]:
    """The measured runs of the records in a folder or in its `results/`, or of the set in runs/
    with a run of this identity. Raises ExpectedError if there are none."""
    if IDENTITY.fullmatch(place) and not Path(place).exists():
        runs = run_set(read_runs(Path(paths.RUNS)), place)
        if not runs:
            raise ExpectedError(f"{place}: {paths.RUNS}/ has no run of this identity")
        config = load(Path("config/config.yaml"), dict[str, Any])
        devices = load_project(Path(), config).devices
        return list(map(_run, of_one_spec([_record(run, devices) for run in runs])))
    folders = "", "*/", f"{paths.RESULTS}/*/"
    files = [file for folder in folders for file in Path(place).glob(f"{folder}*/{RECORDS_NAME}")]
    records = [one for file in files for one in read_records(file.parents[1], file.parent.name)]
    if not records:
        raise ExpectedError(f"{place}: no folder with results, and no identity of a run")
    return list(map(_run, of_one_spec(records)))


def _run(record: Record) -> Run:
    names = ("study", "device", "cell", "repeat", "status", "cause")
    facts: Run = msgspec.to_builtins(record.provenance)
    facts |= {name: getattr(record, name) for name in names}
    measured = ("samples_per_s", "block_noise")
    return facts | {name: getattr(record.measurement, name, None) for name in measured}


# Runs in runs/


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
        if match := _FOLDER.fullmatch(name):
            facts |= {"study": study, "device": device, "cell": cell, "repeat": int(match[1])}
            runs.append(facts | {"name": match[2], "folder": str(outcome.parent)})
    return sorted(runs, key=itemgetter("started_at"), reverse=True)


def run_set(runs: Sequence[Run], name: str) -> list[Run]:
    """The runs with the same code and software as the run `name`, of each repeat of each cell the
    newest; none if there is no such run. A run's digest is that of the code which it imports, so
    the set has the code of all calls of Snakemake that measured with this run's."""
    first = next((run for run in runs if run["name"] == name), None)
    if first is None:
        return []
    code, alike = first["source_digest"], [r for r in runs if _software(r) == _software(first)]
    calls = {run["call"] for run in alike if run["source_digest"] == code} - {""}
    codes = {run["source_digest"] for run in alike if run["call"] in calls} | {code}
    newest: dict[Any, Run] = {}
    for run in runs:
        untried = run["packages"] is None and run["call"] in calls
        if untried or (_software(run) == _software(first) and run["source_digest"] in codes):
            newest.setdefault(_slot(run), run)
    return list(newest.values())


def run_sets(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """All sets, the newest first. A set is called by its first run."""
    listed: set[str] = set()
    for run in runs:
        if run["packages"] and run["folder"] not in listed:
            found = run_set(runs, run["name"])
            folders = {other["folder"] for other in found}
            if run["folder"] in folders:  # else a newer attempt counts
                listed |= folders
                yield [run, *(other for other in found if other["folder"] != run["folder"])]


def _record(run: Run, devices: Mapping[str, Device]) -> Record:
    if run["device"] not in devices:
        raise ExpectedError(f"{run['folder']}: config/devices.yaml has no device {run['device']}")
    names = ("device", "cell", "repeat", "folder")
    levels = parse_levels(run["cell"], BETWEEN_LEVELS)
    planned = PlannedRun(levels=levels, **{name: run[name] for name in names})
    return read_run(run["study"], planned, devices[run["device"]])
