"""What the rules get: inputs, options of jobs, outcomes, and the plans of the studies."""

import os
import shlex
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from project_copy import pick

from feedrate.cli import run as run_command
from feedrate.config.values import read_yaml
from feedrate.core import paths
from feedrate.flow.graph import CodeChanged
from feedrate.results.study_plan import read_plan

QUALITY, LOADING, SEARCH = "bridgetower-quality", "bridgetower-dataloading", "flava-batch-search"


def wildcards(graph, spec):
    """The wildcards of a run's job."""
    name = Path(graph.folders.target(spec)).name
    values = {"study": spec.study, "cell": spec.cell, "repeat": str(spec.repeat)}
    return SimpleNamespace(**values, identity=name.partition("-")[2])


def options(job):
    """The options of a job, as its shell reads them."""
    _, *words = shlex.split(job)
    found = {}
    for word in words:
        if word.startswith("--"):
            values = found.setdefault(word, [])
        else:
            values.append(word)
    return found


def options_of(graph, spec):
    """The options of a run's job."""
    return options(graph.train(spec.device, wildcards(graph, spec)))


def test_an_input_that_all_runs_share_is_a_constant_and_one_that_none_needs_is_left_out(copy):
    inputs = copy.graph(studies=[LOADING], devices=["cpu"]).inputs("cpu")
    assert list(inputs) == ["data"]
    (file,) = inputs["data"]
    assert file.startswith("resources/datasets/generated/prepared-")


def test_an_input_that_differs_is_asked_for_run_by_run(copy):
    graph = copy.graph(studies=[LOADING, QUALITY, SEARCH], devices=["h100"])
    inputs = graph.inputs("h100")
    for study, evaluated in ((QUALITY, True), (LOADING, False)):
        run = pick(graph, study=study)
        asked = wildcards(graph, run)
        assert inputs["data"](asked) == [graph.data.manifest(run.dataset)]
        assert len(inputs["winoground"](asked)) == evaluated
    assert pick(graph, study=SEARCH).dataset != pick(graph, study=QUALITY).dataset


def test_winoground_is_an_input_and_an_option_of_runs_that_are_evaluated(copy):
    graph = copy.graph(studies=[QUALITY])
    (file,) = graph.inputs("cpu")["winoground"]
    assert file.startswith("resources/winoground/generated-")
    assert options_of(graph, pick(graph))["--winoground"] == [file]
    without = copy.graph(studies=[QUALITY], winoground=None)
    assert list(without.inputs("cpu")) == ["data"]
    assert "--winoground" not in options_of(without, pick(without))


def test_fetched_weights_and_a_store_of_pictures_are_inputs(copy):
    copy.edit(f"config/studies/{SEARCH}.yaml", "decode: host", "decode: cache")
    graph = copy.graph(studies=[SEARCH], checkpoint="hub/flava", checkpoint_model="flava")
    inputs = graph.inputs("cpu")
    assert inputs["weights"] == ["resources/checkpoints/hub--flava@main/fetched.json"]
    (store,) = inputs["store"]
    folder, key, _ = store.rsplit("/", 2)
    assert f"{folder}/manifest.json" == inputs["data"][0]
    assert options_of(graph, pick(graph))["--store"] == [store]
    again = copy.graph(studies=[SEARCH], checkpoint="hub/flava", checkpoint_model="flava")
    key = key.removeprefix("store-")
    assert again.data.fetched_weights(again.data.store_spec(key).model) == inputs["weights"]
    assert again.data.store_spec(key).model.name == "flava"
    fetched = {"--name": ["hub/flava"], "--revision": ["main"]}
    assert options(again.data.fetch_checkpoint("hub--flava@main")) == fetched


def test_options_tell_a_job_what_its_identity_does_not(copy):
    copy.edit(f"config/studies/{SEARCH}.yaml", "steps: 40,", "timeout_min: 7.5, steps: 40,")
    others = {"push_to_hub": "me/my models", "report_to": ["mlflow", "trackio"]}
    graph = copy.graph(studies=[SEARCH], **others)
    runs = [run for run in graph.plan.runs.values() if graph.smaller(run)]
    found = options_of(graph, runs[0])
    assert msgspec.json.decode(found["--spec"][0], type=type(runs[0])) == runs[0]
    assert found["--timeout-min"] == ["7.5"]
    assert found["--push-to"] == ["me/my models"]
    assert found["--report-to"] == ["mlflow,trackio"]
    assert len(found["--source-digest"][0]) == 64
    assert found["--smaller"] == [graph.folders.target(run) for run in graph.smaller(runs[0])]
    assert {"--store", "--winoground"}.isdisjoint(found)


def test_a_second_attempt_has_the_options_of_its_run(copy):
    graph = copy.graph(studies=[LOADING])
    run = pick(graph)
    copy.write(f"{graph.folders.target(run)}/outcome.json", '{"status": "failed"}')
    again = copy.graph(studies=[LOADING])
    assert wildcards(again, run).identity.endswith("-2")
    out = {"--out": [again.folders.target(run)]}
    assert options_of(again, run) == options_of(graph, run) | out


def test_a_job_of_a_run_that_is_another_one_by_now_does_not_start(copy):
    graph = copy.graph(studies=[LOADING])
    run = pick(graph)
    asked = wildcards(graph, run)
    copy.edit("workflow/feedrate/jobs/worker.py", "", "ADDED = 1\n")
    with pytest.raises(CodeChanged, match="start it again"):
        copy.graph(studies=[LOADING]).train("cpu", asked)


def test_datasets_have_their_identity_in_their_paths(copy):
    graph = copy.graph(studies=[LOADING, SEARCH], devices=["h100"])
    datasets = {run.dataset for run in graph.plan.runs.values()}
    found = {graph.data.raw_index(name) for name in datasets} | {
        graph.data.manifest(d) for d in datasets
    }
    assert len(datasets) > 1
    assert len(found) == 2 * len(datasets)
    for name in datasets:
        assert graph.data.raw_index(name).startswith(f"resources/datasets/{name}/raw-")


def test_repeat_1_of_all_cells_comes_before_repeat_2(copy):
    graph = copy.graph(studies=[LOADING])
    by_repeat = {}
    for run in graph.plan.runs.values():
        priority = graph.order("cpu", wildcards(graph, run))
        by_repeat.setdefault(run.repeat, []).append(priority)
    assert min(by_repeat[1]) > max(by_repeat[2])


def test_outcomes_are_those_of_a_study_on_a_device(copy):
    graph = copy.graph(studies=[LOADING, QUALITY], devices=["cpu", "cpu-x2"])
    of_both = graph.outcomes(LOADING, "cpu") + graph.outcomes(LOADING, "cpu-x2")
    of_study = [graph.outcome(run) for run in graph.plan.of_study(LOADING)]
    assert sorted(of_both) == sorted(of_study)
    assert len(graph.all_outcomes()) == len(graph.plan.runs) == len(graph.runs_to_do())
    assert graph.outcomes(LOADING, "cpu", ended=True) == []
    copy.write(of_both[0], '{"status": "failed"}')
    again = copy.graph(studies=[LOADING, QUALITY], devices=["cpu", "cpu-x2"])
    assert again.outcomes(LOADING, "cpu", ended=True) == [of_both[0]]
    assert of_both[0] not in again.outcomes(LOADING, "cpu")
    assert len(again.runs_to_do()) == len(again.plan.runs)


def test_the_runs_to_do_are_those_that_the_targets_need(copy):
    graph = copy.graph(studies=[LOADING, QUALITY])
    runs = graph.runs_to_do()
    outcome = graph.outcome(runs[0])
    assert graph.runs_to_do([QUALITY]) == [run for run in runs if run.study == QUALITY]
    assert graph.runs_to_do([outcome]) == runs[:1]
    assert graph.runs_to_do(["selftest"]) == []
    assert graph.runs_to_do([outcome, "measure"]) == graph.runs_to_do([paths.PAGE]) == runs


def test_a_report_of_chosen_cells_is_made_if_the_only_run_failed(copy, monkeypatch):
    reported = []
    monkeypatch.setattr(run_command, "make_report", reported.extend)
    run_command.report_on_what_exists(copy.graph(studies=[LOADING]), only_some=True)
    assert reported == []
    copy.write(copy.graph(studies=[LOADING]).all_outcomes()[0], '{"status": "failed"}')
    run_command.report_on_what_exists(copy.graph(studies=[LOADING]), only_some=True)
    assert [plan.name for plan in reported] == [LOADING]


# The plans of the studies, which the report's jobs read


def test_a_plan_is_written_when_it_changes_and_only_then(copy):
    studies = {"studies": [LOADING, QUALITY]}
    for outcome in copy.graph(**studies).all_outcomes():
        copy.write(outcome, '{"status": "ok"}')
    copy.graph(**studies).write_plans()
    files = [Path(paths.STUDY_PLAN.format(study=study)) for study in studies["studies"]]
    for file in files:
        os.utime(file, (1, 1))
    copy.graph(**studies).write_plans()
    assert [file.stat().st_mtime for file in files] == [1, 1]
    copy.edit(f"config/studies/{LOADING}.yaml", "title: ", "title: Again, ")
    copy.graph(**studies).write_plans()
    assert [file.stat().st_mtime == 1 for file in files] == [False, True]
    assert read_plan(files[0]).study.title.startswith("Again, ")


def test_a_plan_with_a_run_to_do_is_new_so_that_an_up_to_date_report_does_not_hide_the_run(copy):
    graph = copy.graph(studies=[LOADING])
    copy.write(graph.all_outcomes()[0], '{"status": "ok"}')
    graph.write_plans()
    (plan,) = Path(".snakemake/feedrate").glob(f"{LOADING}.json")
    os.utime(plan, (1, 1))
    copy.graph(studies=[LOADING]).write_plans()
    assert plan.stat().st_mtime > 1


def test_a_plan_has_the_folders_that_this_call_makes_or_those_that_have_ended(copy):
    graph = copy.graph(studies=[LOADING])
    run = pick(graph)
    first = graph.folders.target(run)
    copy.write(f"{first}/outcome.json", '{"status": "failed"}')
    again = copy.graph(studies=[LOADING])
    for ended, folder in ((False, f"{first}-2"), (True, first)):
        (plan,) = again.study_plans(ended=ended)
        (found,) = (r for r in plan.runs if (r.cell, r.repeat) == (run.cell, run.repeat))
        assert found.folder == folder
    again.write_plans()
    written = read_plan(Path(paths.STUDY_PLAN.format(study=LOADING)))
    assert msgspec.structs.replace(written, written_ns=0) == again.study_plans()[0]


def test_after_a_change_of_the_dataset_the_old_runs_stay_and_only_the_new_ones_are_shown(copy):
    def shown(graph):
        (plan,) = graph.study_plans(ended=True)
        return {run.folder for run in plan.runs}

    datasets = read_yaml(copy.root / "config/config.yaml")["datasets"]
    redrawn = datasets | {"generated": datasets["generated"] | {"seed": 21}}
    choices = {"studies": [LOADING], "devices": ["cpu"]}
    old = shown(copy.graph(**choices))
    for folder in old:
        copy.write(f"{folder}/outcome.json", '{"status": "ok"}')
    assert copy.graph(**choices).runs_to_do() == []
    graph = copy.graph(**choices, datasets=redrawn)
    new = shown(graph)
    assert len(graph.runs_to_do()) == len(new) == len(old)
    assert old.isdisjoint(new)
    for folder in new:
        copy.write(f"{folder}/outcome.json", '{"status": "ok"}')
    assert shown(copy.graph(**choices, datasets=redrawn)) == new
    assert shown(copy.graph(**choices)) == old, "the old ones are there for another look"
    assert copy.graph(**choices).runs_to_do() == []


# The code of cheap rules


def test_the_page_is_made_again_after_an_edit_of_a_table_or_a_figure(copy):
    files = copy.graph(studies=[LOADING]).page_inputs()["code"]
    report = copy.root / "workflow/feedrate/report"
    pages = [*report.glob("tables/[!_]*.py"), *report.glob("figures/[!_]*.py")]
    assert len(pages) > 5
    for file in (report / "page.py", *pages):
        assert str(file.relative_to(copy.root)) in files
    assert not any("feedrate/devices/kinds" in file for file in files)
