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
from feedrate.jobs.events import read_run_events
from feedrate.results.measurement import scores
from feedrate.results.record import Score

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
def accuracies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Score]:
    """The accuracies, by split, of the run that `make run` makes on the data that it draws, with
    fewer steps; nothing is measured."""
    folder: Path = tmp_path_factory.mktemp("learned")
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text()) | {"studies": [STUDY]}
    project = load_project(ROOT, config)
    spec = next(iter(make_plan(project).of_study(STUDY)))
    protocol = msgspec.structs.replace(spec.protocol, steps=STEPS, ceiling_s=0)
    spec = msgspec.structs.replace(spec, protocol=protocol)
    settings = msgspec.json.encode(find_dataset(project.config, spec.dataset)).decode()
    index, manifest = folder / "raw/index.json", folder / "prepared/manifest.json"
    fetching = ("--name", spec.dataset, "--settings", settings, "--out", index)
    python("feedrate", "fetch_dataset", *fetching)
    preparing = ("--index", index, "--settings", settings, "--out", manifest)
    python("feedrate", "preprocess_dataset", *preparing)
    run = folder / "run"
    write_json(run / SPEC_NAME, msgspec.to_builtins(spec))
    python("feedrate", "worker", "--run", run, "--data", manifest.parent)
    found = scores(read_run_events(run)[0].evaluations)
    return {one.on: one for one in found if one.metric == "matching_accuracy"}


@pytest.mark.parametrize("split", ["validation", "test"])
def test_the_right_caption_of_five_is_chosen_clearly_more_often_than_by_lot(accuracies, split):
    one = accuracies[split]
    assert one.chance == CHANCE
    assert one.before == pytest.approx(CHANCE, abs=0.1)
    assert one.after > CHANCE + 0.1
    assert one.gain_low > 0
