"""Runs that are evaluated have Winoground among their inputs, and no others."""

from pathlib import Path

import pytest
import yaml

from feedrate.config.project import load_project
from feedrate.flow.view import PlanView

ROOT = Path(__file__).resolve().parents[3]
EVALUATED, OTHER = "bridgetower-quality", "bridgetower-dataloading"


@pytest.fixture
def view(tmp_path, monkeypatch):
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    monkeypatch.chdir(tmp_path)  # where a plan looks for results, and keeps its own
    return lambda **changes: PlanView(load_project(ROOT, config | changes), ROOT)


@pytest.mark.parametrize(("study", "evaluated"), [(EVALUATED, True), (OTHER, False)])
def test_winoground_is_an_input_of_runs_that_are_evaluated(view, study, evaluated):
    made = view(studies=[study])
    key = next(iter(made.plan.runs))
    file = "resources/winoground/generated/examples.json"
    assert made.inputs.winoground(made.plan.runs[key]) == [file] * evaluated
    assert ("winoground" in made.inputs.of_training(key[1])) == evaluated
    said = made.training(key[0], key[1], key[2], "1")["winoground"]
    assert said == (f"--winoground {file}" if evaluated else "")


def test_without_a_copy_of_winoground_there_is_no_input(view):
    made = view(studies=[EVALUATED], winoground=None)
    assert "winoground" not in made.inputs.of_training(next(iter(made.plan.runs))[1])
