"""The option --cell: which runs it chooses, and what it refuses."""

from pathlib import Path

import pytest

from feedrate.cli.plan import chosen_runs
from feedrate.config.project import load_project
from feedrate.config.values import read_yaml
from feedrate.core.errors import UsageError
from feedrate.flow.graph import Graph

ROOT = Path(__file__).resolve().parents[3]
LOADING = "bridgetower-dataloading"


@pytest.fixture(scope="module")
def graph():
    chosen = {"studies": [LOADING, "bridgetower-learning"], "devices": ["gaudi2", "cpu"]}
    return Graph(load_project(ROOT, read_yaml(ROOT / "config/config.yaml") | chosen), ROOT)


def cells(graph, *texts):
    """The chosen cells by device; each has all its repeats."""
    runs = chosen_runs(graph, texts)
    names = {(run.study, run.device, run.cell) for run in runs}
    assert len(runs) == 3 * len(names)
    return names


def test_a_cell_is_trained_on_each_device_that_can(graph):
    name = "workers=2~decode=reference~strategy=ddp"
    assert cells(graph, "workers=2") == {(LOADING, "gaudi2", name), (LOADING, "cpu", name)}
    assert cells(graph, f"{LOADING}: workers = 2") == cells(graph, "workers=2")
    on_device = cells(graph, "decode=device,workers=1")
    assert on_device == {(LOADING, "gaudi2", "workers=1~decode=device~strategy=ddp")}
    both = cells(graph, "workers=2", "decode=device,workers=1")
    assert both == cells(graph, "workers=2") | on_device


def test_a_cell_without_runs_of_its_own_has_those_that_it_shares(graph):
    assert cells(graph, "decode=device,workers=2") == cells(graph, "decode=device,workers=1")


def test_a_cell_that_one_device_shares_is_trained_as_itself_on_another():
    chosen = {"studies": [LOADING], "devices": ["gaudi2", "h100"]}
    config = read_yaml(ROOT / "config/config.yaml") | chosen
    both = cells(Graph(load_project(ROOT, config), ROOT), "decode=device,workers=2")
    names = {device: name.partition("~")[0] for _, device, name in both}
    assert len(both) == 2
    assert names["gaudi2"] != names["h100"] == "workers=2"


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("workes=2", "did you mean workers? factors: workers, decode, strategy"),
        ("workers=5", "levels: 0, 1, 2, 3, 4, 8, 16"),
        ("workers", "expected factor=value"),
        ("vit-speedups:size=huge", f"studies of this call: {LOADING}, bridgetower-learning"),
        ("bridgetower-learning:workers=2", "factors: decode"),
        ("decode=device,workers=16", "the study leaves this cell out"),
    ],
)
def test_an_unknown_name_or_level_is_an_error_with_what_is_allowed(graph, text, allowed):
    with pytest.raises(UsageError, match=f"^--cell {text}: ") as raised:
        chosen_runs(graph, ["workers=2", text])
    assert allowed in str(raised.value)
