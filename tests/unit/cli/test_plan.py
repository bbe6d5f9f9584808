"""The runs to do, their time and their cost."""

from pathlib import Path

import pytest

from feedrate.cli import plan as plans
from feedrate.cli.plan import Runs, count_runs, show
from feedrate.config.project import load_project
from feedrate.config.values import read_yaml
from feedrate.core import paths
from feedrate.core.files import write_json
from feedrate.flow.estimate import Estimate
from feedrate.flow.folders import run_folder
from feedrate.flow.graph import Graph

ROOT = Path(__file__).resolve().parents[3]
STUDY = "bridgetower-dataloading"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def graph(monkeypatch):
    """Every run takes 36 s by its earlier runs; on gaudi2, repeat 3 is not known."""

    class Known:
        def __init__(self, project):
            pass

        def of(self, spec):
            unknown = (spec.device, spec.repeat) == ("gaudi2", 3)
            return None if unknown else Estimate(36.0, "earlier runs")

    monkeypatch.setattr(plans, "Estimator", Known)
    chosen = {"studies": [STUDY], "devices": ["gaudi2", "h100"]}
    values = read_yaml(ROOT / "config/config.yaml") | chosen
    return Graph(load_project(ROOT, values), ROOT)


def test_only_runs_without_a_result_are_to_do(graph):
    runs = [spec for spec in graph.plan.runs.values() if spec.device == "h100"]
    for folder, status in (
        (graph.folders.target(runs[0]), "ok"),
        (run_folder(runs[1], "0a1b2c3d"), "ok"),
        (graph.folders.target(runs[2]), "failed"),
    ):
        write_json(Path(folder) / paths.OUTCOME_NAME, {"status": status})
    graph = Graph(graph.project, ROOT)
    gaudi2, h100 = count_runs(graph)
    assert (h100.study, h100.device, h100.devices_per_job) == (STUDY, "h100", 8)
    assert (h100.cells, h100.unsupported_cells) == (9, 7)
    assert (h100.done, h100.to_do) == (1, 26)
    assert h100.job_s == 26 * 36
    assert h100.limit_s == 26 * 240 * 60
    assert (gaudi2.cells, gaudi2.done, gaudi2.to_do, gaudi2.unknown) == (14, 0, 42, 14)
    assert gaudi2.job_s == 28 * 36
    hours, at_most = h100.row[5:7]
    assert (hours, at_most) == (f"{26 * 36 * 8 / 3600:.1f}", f"{26 * 4 * 8:.1f}")


def test_devices_run_side_by_side_on_a_cluster_and_in_turn_on_one_machine(graph, capsys):
    groups = count_runs(graph)
    show(groups, on_cluster=True)
    text = capsys.readouterr().out
    assert "2.2 + 14 unknown" in text
    assert "about 17 min without 14 runs of unknown length, and at most 168 h" in text
    show(groups, on_cluster=False)
    assert "about 33 min without 14 runs of unknown length, and at most 276 h" in (
        capsys.readouterr().out
    )


def test_a_cost_needs_a_price(graph):
    groups = count_runs(graph)
    assert groups[1].row[7:9] == ["no price", "no price"]
    groups[1].price_usd_per_hour = 20.0
    assert groups[1].row[7:9] == [f"{27 * 36 / 3600 * 20:.2f} USD", f"{27 * 4 * 20:.2f} USD"]


def test_what_is_not_known_is_called_so(capsys):
    show([Runs(STUDY, "cpu", 1, None, cells=1, to_do=1, unknown=1)], on_cluster=True)
    assert "takes an unknown time" in capsys.readouterr().out


def test_nothing_to_do_is_said(capsys):
    show([Runs(STUDY, "cpu", 1, None, cells=1, done=1)], on_cluster=False)
    assert "There are no runs to do." in capsys.readouterr().out
