"""The recipe of the embedded default: a model of random weights learns the drawn cartoons."""

import subprocess

import msgspec
import pytest
import yaml
from mini_project import ROOT

import warm
from feedrate.config.plan import make_plan
from feedrate.config.project import load_project
from feedrate.config.workflow import find_dataset
from feedrate.core.files import write_json
from feedrate.core.paths import SPEC_NAME
from feedrate.jobs.events import read_run_events
from feedrate.results.measurement import scores

CHANCE = 1 / 5
STUDY = "bridgetower-learning"
STEPS = 75
"""Of the 160 of `make run`, in which it learns far more than is asked for here."""
SCORED = {"validation": 8, "test": 120}
"""Rows of the splits that are scored: what is learned is asked of one of them."""


def python(*arguments: object) -> None:
    done = subprocess.run(
        [warm.python(), "-m", *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_right_caption_of_five_is_chosen_clearly_more_often_than_by_lot(tmp_path):
    """Of new pictures, after the run that `make run` makes on the data that it draws, with fewer
    steps; nothing is measured."""
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text()) | {"studies": [STUDY]}
    project = load_project(ROOT, config)
    spec = next(iter(make_plan(project).of_study(STUDY)))
    protocol = msgspec.structs.replace(spec.protocol, steps=STEPS, ceiling_s=0)
    spec = msgspec.structs.replace(spec, protocol=protocol)
    drawn = msgspec.structs.replace(find_dataset(project.config, spec.dataset), **SCORED)
    settings = msgspec.json.encode(drawn).decode()
    index, manifest = tmp_path / "raw/index.json", tmp_path / "prepared/manifest.json"
    fetching = ("--name", spec.dataset, "--settings", settings, "--out", index)
    python("feedrate", "fetch_dataset", *fetching)
    preparing = ("--index", index, "--settings", settings, "--out", manifest)
    python("feedrate", "preprocess_dataset", *preparing)
    run = tmp_path / "run"
    write_json(run / SPEC_NAME, msgspec.to_builtins(spec))
    python("feedrate", "worker", "--run", run, "--data", manifest.parent)
    (accuracy,) = (
        score
        for score in scores(read_run_events(run)[0].evaluations)
        if (score.on, score.metric) == ("test", "matching_accuracy")
    )
    assert accuracy.chance == CHANCE
    assert accuracy.before == pytest.approx(CHANCE, abs=0.1)
    assert accuracy.after > CHANCE + 0.1
    assert accuracy.gain_low > 0
