"""The recipe of the embedded default: a model of random weights learns the drawn cartoons."""

import subprocess
from pathlib import Path

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
from feedrate.results.record import Quality, read_quality

CHANCE = 1 / 5
STUDY = "bridgetower-learning"
STEPS = 100
"""Of the 160 of `make run`, in which it learns far more than is asked for here."""


def python(*arguments: object) -> None:
    done = subprocess.run(
        [warm.python(), "-m", *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Quality:
    """The run that `make run` makes, on the data that it draws, trained and scored, with fewer
    steps; nothing is measured."""
    folder: Path = tmp_path_factory.mktemp("learned")
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text()) | {"studies": [STUDY]}
    project = load_project(ROOT, config)
    spec = next(iter(make_plan(project).of_study(STUDY)))
    protocol = msgspec.structs.replace(spec.protocol, steps=STEPS)
    spec = msgspec.structs.replace(spec, protocol=protocol)
    settings = repr(msgspec.to_builtins(find_dataset(project.config, spec.dataset)))
    index, manifest = folder / "raw/index.json", folder / "prepared/manifest.json"
    fetching = ("--name", spec.dataset, "--settings", settings, "--out", index)
    python("feedrate", "fetch-dataset", *fetching)
    preparing = ("--index", index, "--settings", settings, "--out", manifest)
    python("feedrate", "preprocess-dataset", *preparing)
    run = folder / "run"
    write_json(run / SPEC_NAME, msgspec.to_builtins(spec))
    python("feedrate", "worker", "--run", run, "--data", manifest.parent, "--bare")
    write_json(run / "outcome.json", {"status": "ok", "cause": ""})
    out, given = run / "quality.json", repr(msgspec.to_builtins(spec))
    arguments = ("--outcome", run / "outcome.json", "--model", run / "trainer/model")
    python("feedrate", "score", "--spec", given, *arguments, "--data", manifest, "--out", out)
    return read_quality(out)


def accuracy(quality: Quality, moment: str, split: str):
    return next(
        score
        for score in quality.scores
        if (score.metric, score.moment, score.on) == ("matching_accuracy", moment, split)
    )


@pytest.mark.parametrize("split", ["validation", "test"])
def test_the_right_caption_of_five_is_chosen_clearly_more_often_than_by_lot(scored, split):
    assert scored.status == "ok", scored.cause
    after = accuracy(scored, "after", split)
    assert after.chance == CHANCE
    assert after.low > CHANCE, after
    assert after.value > accuracy(scored, "before", split).value + 0.1


@pytest.mark.parametrize("split", ["validation", "test"])
def test_before_training_it_is_chance(scored, split):
    before = accuracy(scored, "before", split)
    assert before.low <= CHANCE <= before.high, before


@pytest.mark.parametrize("split", ["validation", "test"])
def test_the_loss_on_unseen_pictures_falls(scored, split):
    loss = {
        score.moment: score.value
        for score in scored.scores
        if (score.metric, score.on) == ("contrastive_loss", split)
    }
    assert loss["after"] < loss["before"]
