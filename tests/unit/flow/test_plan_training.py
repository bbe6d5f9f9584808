"""What makes a run be done again, beside its data: the params of its job."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest
import yaml

from feedrate.config.plan import make_plan
from feedrate.config.project import Project, load_project
from feedrate.core import paths, variables
from feedrate.core.files import digest_value, write_json
from feedrate.data.manifest import STORE_INDEX, store_folder, store_spec
from feedrate.flow.attempts import Attempts
from feedrate.flow.view import PlanView
from feedrate.jobs.earlier import inputs_digest, ladders, not_tried, pruned_by
from feedrate.jobs.supervisor import identity

ROOT = Path(__file__).resolve().parents[3]
SEARCH = "flava-batch-search"
DEVICES = ["cpu", "h100", "a100-40gb"]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A project's root with a copy of the configuration, where it is also driven."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(variables.LADDERS, raising=False)
    return tmp_path


def load(root, **changes) -> Project:
    config = yaml.safe_load((root / "config/config.yaml").read_text())
    return load_project(root, config | {"studies": [SEARCH], "devices": DEVICES} | changes)


def edit(root, file, old, new):
    path = root / "config" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def left(spec, status="out_of_memory", source="c", cause="it was full", attempt=1, **more):
    """The run's outcome of the code `source`; of data that are not there."""
    file = paths.run_dir(spec.study, spec.device, spec.cell, spec.repeat) / "outcome.json"
    outcome = {"status": status, "cause": cause, "attempt": attempt, "source_digest": source}
    spec_digest = digest_value(msgspec.to_builtins(spec))
    write_json(file, outcome | {"spec_digest": spec_digest, "data_digest": ""} | more)


def test_another_integration_repeats_nothing(root):
    plain, tracked = load(root), load(root, report_to=["mlflow", "trackio"])
    specs = list(make_plan(plain).runs.values())[:3]
    assert [params(plain, spec) for spec in specs] == [params(tracked, spec) for spec in specs]


def params(project, spec):
    return PlanView(project, Path()).training(spec.study, spec.device, spec.cell, str(spec.repeat))


@pytest.mark.parametrize("study", [SEARCH, "flava-scaling", "bridgetower-inference"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_run_that_ran_out_prunes_all_that_the_plan_makes_larger_and_no_others(
    root, study, device, monkeypatch
):
    project = load(root, studies=[study], devices=[device])
    monkeypatch.setenv(variables.LADDERS, json.dumps(ladders(project)))
    runs = [spec for spec in make_plan(project).runs.values() if spec.repeat == 1]
    order = {f: project.studies[study].factors[f].levels for f in project.studies[study].ladder}

    def asks_for_as_much(more, less):
        return all(
            order[f].index(level) >= order[f].index(less.levels[f])
            if f in order
            else level == less.levels[f]
            for f, level in more.levels.items()
        )

    tried = runs[len(runs) // 2]
    left(tried)
    for spec in runs:
        run = paths.run_dir(spec.study, spec.device, spec.cell, 1)
        larger = spec is not tried and asks_for_as_much(spec, tried)
        found = pruned_by(spec, ("c", ""), lambda _: "", run)
        assert found == (tried.cell if larger else None), spec.cell


@pytest.fixture
def pruned(root, monkeypatch):
    """A cell that ran out of memory and one that was not tried for it, with their project."""
    project = load(root)
    monkeypatch.setenv(variables.LADDERS, json.dumps(ladders(project)))
    runs = make_plan(project).runs
    small, large = (
        runs[SEARCH, "h100", f"size=350M~strategy=ddp~batch={batch}", 1] for batch in (64, 128)
    )
    source = params(project, small)["source"]
    left(small, source=source)
    left(large, source=source, cause=not_tried(small.cell))
    return project, small, large


def test_what_ran_out_of_memory_and_what_that_prunes_are_not_tried_again(pruned):
    project, small, large = pruned
    assert [params(project, spec)["attempt"] for spec in (small, large)] == [1, 1]


def test_a_pruned_cell_is_tried_when_the_smaller_one_fits(pruned):
    project, small, large = pruned
    left(small, status="ok", source=params(project, small)["source"])
    assert params(project, large)["attempt"] == 2


def test_a_pruned_cell_is_tried_when_the_smaller_one_ran_out_with_other_code(pruned):
    project, small, large = pruned
    left(small, source="before the edit")
    assert params(project, large)["attempt"] == 2


def test_a_pruned_cell_is_tried_when_its_study_has_no_ladder_any_more(pruned, root, monkeypatch):
    _, _, large = pruned
    edit(root, f"studies/{SEARCH}.yaml", "ladder: [size, batch]\n", "")
    project = load(root)
    monkeypatch.setenv(variables.LADDERS, json.dumps(ladders(project)))
    assert params(project, large)["attempt"] == 2


def with_weights(root, **changes):
    """The project whose studies of flava start from the user's own folder, which it has."""
    folder = root / "mine"
    folder.mkdir(exist_ok=True)
    for name in ("model.safetensors", "config.json"):
        (folder / name).write_text("{}")
    return load(root, checkpoint="mine", checkpoint_model="flava", **changes)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_other_weights_in_a_users_folder_train_what_starts_from_them(root, name):
    both = [SEARCH, "bridgetower-dataloading"]
    project = with_weights(root, studies=both, devices=["cpu"])
    runs = make_plan(project).runs.values()
    flava, other = (next(spec for spec in runs if spec.study == study) for study in both)
    before = params(project, flava), params(project, other)
    (root / "mine/README.md").write_text("a card")
    assert (params(project, flava), params(project, other)) == before
    (root / "mine" / name).write_text("other")
    after = params(project, flava), params(project, other)
    assert (after[0] == before[0], after[1] == before[1]) == (False, True)
    assert "weights" not in after[1]


def test_a_result_of_other_weights_is_none_of_this_plan(root):
    project = with_weights(root, devices=["cpu"])
    spec = next(iter(make_plan(project).runs.values()))
    inputs = identity(spec, Path("manifest.json"), "c", 1).inputs
    left(spec, status="ok", inputs_digest=inputs)
    assert Attempts().has_ended(spec, "c")
    (root / "mine/config.json").write_text("other")
    assert identity(spec, Path("manifest.json"), "c", 1).inputs != inputs
    assert not Attempts().has_ended(spec, "c")
    left(spec, status="ok")  # an earlier version noted none
    assert Attempts().has_ended(spec, "c")


def test_the_lists_of_fetched_weights_and_of_a_store_are_inputs(root):
    edit(root, f"studies/{SEARCH}.yaml", "decode: host", "decode: cache")
    project = load(root, checkpoint="hub/flava", checkpoint_model="flava")
    settings = next(iter(make_plan(project).runs.values())).settings
    prepared = root / "prepared"
    seen = [inputs_digest(settings, prepared)]
    fetched = Path(paths.CHECKPOINT.format(checkpoint=paths.checkpoint_key("hub/flava", None)))
    for file in (fetched, store_folder(settings, prepared) / STORE_INDEX):
        for content in ("one", "two"):
            write_json(file, content)
            seen.append(inputs_digest(settings, prepared))
    assert seen[0] == ""
    assert len(set(seen)) == 5


def test_other_weights_make_a_store_of_decoded_pictures_anew(root):
    """Its tokenizer is the checkpoint's."""
    edit(root, f"studies/{SEARCH}.yaml", "decode: host", "decode: cache")
    project = with_weights(root, devices=["cpu"])

    def storing():
        view = PlanView(project, Path())
        spec = next(iter(make_plan(project).runs.values()))
        return view.storing(store_spec(spec.settings).key)

    before = storing()
    (root / "mine/config.json").write_text("other")
    assert storing() != before


def test_more_time_is_another_try_only_for_what_its_limit_stopped(root):
    spec = next(iter(make_plan(load(root)).runs.values()))
    left(spec, status="ok")
    done = params(load(root), spec)
    edit(
        root,
        f"studies/{SEARCH}.yaml",
        "protocol: {steps: 40,",
        "protocol: {timeout_min: 9, steps: 40,",
    )
    assert params(load(root), spec) == done
    left(spec, status="failed", cause="stopped after 9 min (protocol.timeout_min)")
    assert params(load(root), spec) == done | {"attempt": 2}
