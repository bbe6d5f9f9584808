"""The runs to do, their time and their cost."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from feedrate.cli.plan import device_rows, outlook_of
from feedrate.config.project import load_project
from feedrate.config.values import read_yaml
from feedrate.core import paths
from feedrate.core.files import write_json
from feedrate.flow.folders import run_folder
from feedrate.flow.graph import Graph

ROOT = Path(__file__).resolve().parents[3]
STUDY = "bridgetower-dataloading"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def graph(folder):
    chosen = {"studies": [STUDY], "devices": ["gaudi2", "h100"]}
    return Graph(load_project(ROOT, read_yaml(ROOT / "config/config.yaml") | chosen), ROOT)


def rows_of(graph):
    return {row[0]: row[1:] for row in device_rows(graph, STUDY)}


def test_only_runs_without_a_result_are_to_do(graph):
    runs = [spec for spec in graph.plan.runs.values() if spec.device == "h100"]
    for folder, status in (
        (graph.folders.target(runs[0]), "ok"),
        (run_folder(runs[1], "0a1b2c3d"), "ok"),
        (graph.folders.target(runs[2]), "failed"),
    ):
        outcome = {"status": status, "duration_s": 36.0}
        write_json(Path(folder) / paths.OUTCOME_NAME, outcome)
        write_json(Path(folder) / paths.SPEC_NAME, msgspec.to_builtins(runs[0]))
    rows = rows_of(Graph(graph.project, ROOT))
    assert rows["h100"][:4] == ["9", "7", "1", "26"]
    assert rows["h100"][4:] == ["16 min", "104 h", "no price", "no price"]
    assert rows["gaudi2"][:4] == ["14", "0", "0", "42"]


def test_a_price_gives_a_range_of_costs(graph):
    devices = graph.project.devices
    priced = replace(devices["gaudi2"], price_usd_per_hour=20.0)
    project = replace(graph.project, devices=devices | {"gaudi2": priced})
    cost, at_most = rows_of(Graph(project, ROOT))["gaudi2"][6:]
    low, high = (float(number) for number in cost.split(" to "))
    assert 0 < low < high < float(at_most)
    assert at_most == f"{42 * 4 * 20:.2f}"


def test_devices_run_side_by_side_on_a_cluster_and_in_turn_on_one_machine(graph):
    assert "at most 168 h" in outlook_of(graph, [STUDY], on_cluster=True)
    assert "at most 276 h" in outlook_of(graph, [STUDY], on_cluster=False)
    assert outlook_of(graph, [], on_cluster=False) == "There are no runs to do."
