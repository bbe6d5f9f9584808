"""Each recipe of config/README.md, done to a copy of the configuration and planned."""

import re

import pytest
import yaml

from feedrate.config.plan import make_plan
from feedrate.config.values import read_yaml
from feedrate.config.workflow import Folder, Hub, HubExamples, LocalExamples

STUDY = "bridgetower-dataloading"
BLOCK = re.compile(r"^```(yaml|csv) (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def recipes(root):
    text = (root / "config/README.md").read_text(encoding="utf-8")
    return {
        title: [match.groups() for match in BLOCK.finditer(body)]
        for title, body in re.findall(
            r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
        )
    }


def merged(base, changes):
    """As the README says: keys are added or changed under their keys, lists are replaced."""
    if not (isinstance(base, dict) and isinstance(changes, dict)):
        return changes
    return {**base, **{key: merged(base.get(key), value) for key, value in changes.items()}}


@pytest.fixture
def follow(copy, root):
    """Do one recipe; gives the project before and after it."""

    def follow(title):
        before = copy.load()
        for kind, file, text in recipes(root)[title]:
            path = copy.root / file
            if kind == "yaml" and path.exists():
                text = yaml.safe_dump(
                    merged(read_yaml(path), yaml.safe_load(text)), sort_keys=False
                )
            path.write_text(text, encoding="utf-8")
        return before, copy.load()

    return follow


def runs(project):
    return set(make_plan(project).runs)


def test_every_recipe_is_tried_here(root):
    assert [title for title, blocks in recipes(root).items() if blocks] == [
        "Add a study",
        "Add a device",
        "Add a level",
        "Add a factor",
        "Add a ladder of techniques",
        "Add published numbers",
        "Add published scores",
        "Score models on Winoground",
        "Push models to the hub",
        "Use images and captions of your own",
        "Use the published dataset and checkpoint",
    ]


def test_add_a_study(follow):
    before, after = follow("Add a study")
    new = runs(after) - runs(before)
    assert runs(before) <= runs(after)
    assert {(study, cell) for study, _, cell, _ in new} == {
        ("batch-size", f"batch={size}") for size in (4, 8, 16)
    }
    assert all(make_plan(after).runs[key].settings.train.batch_size in (4, 8, 16) for key in new)


def test_add_a_device(follow):
    before, after = follow("Add a device")
    new = runs(after) - runs(before)
    assert runs(before) <= runs(after)
    assert {device for _, device, _, _ in new} == {"cpu-2"}
    spec = make_plan(after).runs[min(new)]
    assert (spec.kind, spec.count, spec.launcher) == ("cpu", 2, "torchrun")
    assert spec.settings.model.size == "tiny", "what the study adapts for the kind counts"
    assert after.devices["a40"].count == 4


def test_add_a_level(follow):
    before, after = follow("Add a level")
    new = runs(after) - runs(before)
    assert runs(before) <= runs(after)
    assert {cell for _, _, cell, _ in new} == {"workers=32~decode=reference~strategy=ddp"}
    assert len(new) == 3


def test_add_a_factor(follow):
    before, after = follow("Add a factor")
    cells = {cell for study, _, cell, _ in runs(after) if study == STUDY}
    assert cells == {
        f"workers={w}~decode=reference~strategy=ddp~persistent={p}"
        for w in (0, 1, 2, 3, 4, 8, 16)
        for p in ("false", "true")
        if (w, p) != (0, "true")
    }
    assert after.published == before.published


def test_add_a_ladder_of_techniques(follow):
    _, after = follow("Add a ladder of techniques")
    specs = list(make_plan(after).of_study(STUDY))
    asked = {(s.levels["technique"], s.settings.train.precision) for s in specs}
    assert asked == {("plain", "fp32"), ("half", "bf16"), ("both", "bf16")}
    optimizers = {s.levels["technique"]: s.settings.train.optimizer for s in specs}
    assert optimizers["both"] == "adamw_torch_fused"
    assert optimizers["half"] == optimizers["plain"] == "adamw_torch"


def test_add_published_numbers(follow):
    before, after = follow("Add published numbers")
    assert runs(after) == runs(before)
    (row,) = after.published[STUDY][len(before.published[STUDY]) :]
    assert (row.device, row.levels["workers"], row.value, row.headline) == ("h100", 4, 611.0, False)
    assert row.protocol == "Batch 48; 10 warm-up steps left out"


def test_add_published_scores(follow, copy):
    before, after = follow("Add published scores")
    assert runs(after) == runs(before)
    study = "bridgetower-quality"
    scores = copy.load(studies=[study]).scores[study]
    assert scores[-1].id == "ours-2025"
    assert (scores[-1].text_score, scores[-1].head) == (40.25, "matching")
    assert any(score.id == "clip-b32" for score in scores)


def test_models_are_scored_on_another_copy_of_winoground(follow):
    before, after = follow("Score models on Winoground")
    sets = after.config.winoground_sets
    assert (before.config.winoground, after.config.winoground) == ("generated", "mine")
    assert isinstance(sets["hub"], HubExamples)
    assert isinstance(sets["mine"], LocalExamples)


def test_models_are_pushed(follow):
    before, after = follow("Push models to the hub")
    runs_after = make_plan(after).runs
    assert runs_after == make_plan(before).runs, "no run is done again"
    assert after.config.push_to_hub == "my-name/feedrate-models"


def test_a_dataset_of_ones_own(follow):
    _, after = follow("Use images and captions of your own")
    dataset = after.config.datasets[after.config.dataset]
    assert isinstance(dataset, Folder)
    assert dataset.columns["contest_number"] == "contest"
    assert {spec.dataset for spec in make_plan(after).runs.values()} == {"contest"}


def test_the_published_dataset_and_checkpoint(follow):
    _, after = follow("Use the published dataset and checkpoint")
    dataset = after.config.datasets[after.config.dataset]
    assert isinstance(dataset, Hub)
    assert re.fullmatch("[0-9a-f]{40}", dataset.revision)
    for spec in make_plan(after).runs.values():
        assert (spec.device, spec.settings.model.size) == ("h100", "large")
        assert spec.settings.model.checkpoint == "BridgeTower/bridgetower-large-itm-mlm-itc"
        assert spec.settings.model.revision == "main"
