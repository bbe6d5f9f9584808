"""The runs to do, their time and their cost."""

import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from feedrate.cli.plan import Estimate, device_rows, estimate, outlook, range_text
from feedrate.config.plan import make_plan
from feedrate.config.project import load_project
from feedrate.config.values import read_yaml
from feedrate.core import paths
from feedrate.flow.folders import run_folder
from feedrate.flow.graph import Graph

ROOT = Path(__file__).resolve().parents[3]
STUDY = "bridgetower-dataloading"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def project_on(*devices):
    chosen = {"studies": [STUDY], "devices": [*devices]}
    return load_project(ROOT, read_yaml(ROOT / "config/config.yaml") | chosen)


@pytest.fixture(scope="module")
def project():
    return project_on("cpu")


@pytest.fixture(scope="module")
def runs(project):
    """The first runs with 0, 2 and 16 workers."""
    specs = list(make_plan(project).runs.values())
    return [next(s for s in specs if s.levels["workers"] == workers) for workers in (0, 2, 16)]


@pytest.fixture
def graph(folder):
    return Graph(project_on("gaudi2", "h100"), ROOT)


def leave_run(spec, duration_s, status="ok", folder="", **protocol):
    """A run that has ended, as far as it is read here."""
    place = Path(folder or run_folder(spec, "0a1b2c3d"))
    place.mkdir(parents=True)
    written = msgspec.to_builtins(spec)
    written["protocol"] |= protocol
    (place / paths.SPEC_NAME).write_text(json.dumps(written))
    outcome = {"status": status, "duration_s": duration_s, "cause": ""}
    (place / paths.OUTCOME_NAME).write_text(json.dumps(outcome))
    return place


def likely(project, *specs):
    """The shortest and the longest likely time of runs that are all known."""
    times = estimate(project, specs)
    assert (times.runs, times.unknown) == (len(specs), 0)
    return times.low_s, times.high_s


def test_earlier_runs_of_the_cell_count_first_then_those_of_the_study_then_all(project, runs):
    first, second, third = runs
    leave_run(replace(first, study="another", cell="other"), 40.0)
    assert likely(project, first) == (40.0, 40.0)
    for repeat, duration_s in enumerate((30.0, 34.0, 90.0), start=1):
        leave_run(replace(first, repeat=repeat), duration_s)
    leave_run(second, 20.0)
    assert likely(project, first) == (30.0, 90.0)
    assert likely(project, second) == (20.0, 20.0)
    assert likely(project, third) == (20.0, 90.0)
    assert likely(project, first, second) == (50.0, 110.0)


def test_more_steps_take_up_to_so_many_times_as_long(project, runs):
    spec, *_ = runs
    window = spec.protocol.steps - spec.protocol.warmup_steps
    leave_run(spec, 25.0, steps=spec.protocol.warmup_steps + window // 2)
    assert likely(project, spec) == (25.0, 50.0)
    leave_run(replace(spec, repeat=2), 30.0, steps=spec.protocol.warmup_steps + 2 * window)
    assert likely(project, spec) == (15.0, 50.0)


@pytest.mark.parametrize("status", ["failed", "out_of_memory"])
def test_without_a_good_run_only_the_limit_is_known(project, runs, status):
    leave_run(runs[0], 25.0, status=status)
    folder = leave_run(replace(runs[0], repeat=2), 25.0)
    (folder / paths.SPEC_NAME).write_text('{"settings": {"of": "another version"}}')
    assert estimate(project, runs[:1]) == Estimate(limit_s=240 * 60, runs=1, unknown=1)


def rows_of(graph):
    return {row[0]: row[1:] for row in device_rows(graph, STUDY, list(graph.plan.runs.values()))}


def test_only_runs_without_a_result_are_to_do(graph):
    runs = [spec for spec in graph.plan.runs.values() if spec.device == "h100"]
    leave_run(runs[0], 36.0, folder=graph.folders.target(runs[0]))
    leave_run(runs[1], 36.0)
    leave_run(runs[2], 36.0, status="failed", folder=graph.folders.target(runs[2]))
    rows = rows_of(Graph(graph.project, ROOT))
    assert rows["h100"] == ["9", "7", "1", "26", "16 min", "104 h", "no price", "no price"]
    assert rows["gaudi2"][:5] == ["14", "0", "0", "42", "unknown"]


def test_a_price_gives_a_range_of_costs(graph):
    devices = graph.project.devices
    priced = replace(devices["gaudi2"], price_usd_per_hour=20.0)
    project = replace(graph.project, devices=devices | {"gaudi2": priced})
    at_most = f"{42 * 4 * 20:.2f}"
    assert rows_of(Graph(project, ROOT))["gaudi2"][6:] == ["unknown", at_most]
    run = next(spec for spec in graph.plan.runs.values() if spec.device == "gaudi2")
    for repeat, duration_s in ((1, 36.0), (2, 72.0)):
        leave_run(replace(run, repeat=repeat), duration_s)
    assert rows_of(Graph(project, ROOT))["gaudi2"][6:] == ["8.40 to 16.80", at_most]


def test_devices_run_side_by_side_on_a_cluster_and_in_turn_on_one_machine(graph):
    of_cluster = (
        "69 runs; at most 168 h by their time limits, with one job at a time on each device."
    )
    assert outlook(graph, graph.plan.runs.values(), on_cluster=True) == of_cluster
    assert "at most 276 h by their" in outlook(graph, graph.plan.runs.values(), on_cluster=False)
    assert outlook(graph, [], on_cluster=False) == "There are no runs to do."
    run = next(spec for spec in graph.plan.runs.values() if spec.device == "h100")
    leave_run(run, 60.0)
    assert outlook(graph, graph.plan.runs.values(), on_cluster=False).startswith(
        "69 runs, 27 min for 27 of them (like your earlier runs); at most 276 h"
    )


@pytest.mark.parametrize(
    ("low_s", "high_s", "text"),
    [(0.0, 0.4, "0 s"), (40.0, 90.0, "40 to 90 s"), (20.0, 150.0, "0 to 2 min")],
)
def test_a_range_has_one_unit(low_s, high_s, text):
    assert range_text(low_s, high_s) == text
