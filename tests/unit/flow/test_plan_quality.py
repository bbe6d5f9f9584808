"""What is scored, and when it is scored again."""

import json
from pathlib import Path

import pytest
import yaml

from feedrate.config.project import load_project
from feedrate.flow.attempts import Attempts
from feedrate.flow.digests import CODE, DigestCache, source_digest
from feedrate.flow.view import PlanView

ROOT = Path(__file__).resolve().parents[3]
KEPT, OTHER = "bridgetower-quality", "bridgetower-dataloading"


@pytest.fixture
def view(tmp_path, monkeypatch):
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    project = load_project(ROOT, config | {"studies": [KEPT, OTHER]})
    monkeypatch.chdir(tmp_path)  # where a plan looks for results, and keeps its own
    return PlanView(project, ROOT)


def test_models_that_are_kept_are_scored_and_no_others(view):
    files = view.scores(KEPT)
    assert len(files) == len(view.outcomes(KEPT, files[0].split("/")[2])) == len(set(files))
    assert all(file.endswith("/quality.json") for file in files)
    assert view.score_table(KEPT) == [f"results/{KEPT}/quality.csv"]
    assert view.scores(OTHER) == view.score_table(OTHER) == []


def test_every_file_is_told_which_run_it_is_of(view):
    settings = view.collecting_scores(KEPT)["settings"]
    assert [run["file"] for run in settings["runs"]] == view.scores(KEPT)
    for run in settings["runs"]:
        assert f"/{run['cell']}/rep{run['repeat']}/" in run["file"]
        assert run["levels"].keys() == settings["factors"].keys()


def test_params_hold_the_runs_settings_and_plain_values(view):
    device, cell = view.scores(KEPT)[0].split("/")[2:4]
    params = view.scoring(KEPT, device, cell, "1")
    assert params["settings"] == view.training(KEPT, device, cell, "1")["settings"]
    assert params["source"] != view.training(KEPT, device, cell, "1")["source"]
    assert params["attempt"] == 1
    assert json.loads(json.dumps(params)) == params


def test_scoring_is_no_part_of_what_makes_training_run_again(tmp_path):
    seen = {}
    for name in ("measured", "scored"):
        cache = DigestCache(tmp_path / name)
        source_digest(cache, CODE[name])
        seen[name] = {Path(file).name for file in cache._known if Path(file).parent.name == "jobs"}
    assert {"score.py", "score_model.py", "scores.py"} <= seen["scored"] - seen["measured"]
    assert {"train.py", "trainer.py", "meter.py"} <= seen["measured"] - seen["scored"]


@pytest.mark.parametrize(
    ("left", "number"),
    [
        ({"status": "ok", "attempt": 2}, 2),
        ({"status": "no_model", "attempt": 2}, 2),
        ({"status": "out_of_memory", "attempt": 1}, 1),
        ({"status": "failed", "attempt": 2}, 3),
        ([], 1),
        ({}, 1),
    ],
)
def test_what_failed_is_tried_again(left, number, tmp_path):
    file = tmp_path / "quality.json"
    file.write_text(json.dumps(left))
    attempts = Attempts()
    assert attempts.next(str(file)) == number
    file.write_text(json.dumps({"status": "failed", "attempt": 9}))
    assert attempts.next(str(file)) == number  # once per plan
    assert Attempts().next(str(tmp_path / "absent.json")) == 1
