"""Which folder is a run's: the one that has its result, or the one that the next call makes."""

import json

import pytest
from project_copy import pick

from feedrate.core import paths
from feedrate.flow.folders import RunFolders, run_folder
from run_folder import make_spec

HERE = "ab12cd34"
SPEC = make_spec()
BASE = run_folder(SPEC, HERE)
MADE = f"{paths.RUNS}/loading/gpu/workers=1/rep1-{HERE}"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def leave(tmp_path, folder, text="", **outcome):
    """An attempt that has ended."""
    path = tmp_path / folder / paths.OUTCOME_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text or json.dumps({"status": "ok"} | outcome))


def disturb(tmp_path, *folders):
    path = tmp_path / paths.DISTURBED.format(study=SPEC.study, device=SPEC.device)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(folders))


def folders_of(smaller=()):
    """The folders of the next plan, where all runs have one identity."""
    return RunFolders(lambda _: HERE, lambda _: list(smaller))


def shown(spec=SPEC, smaller=()):
    """Target, newest attempt that has ended, and whether that is a result."""
    folders = folders_of(smaller)
    return folders.target(spec), folders.result(spec), folders.has_result(spec)


def test_a_run_without_a_folder_gets_the_one_of_its_identity(tmp_path):
    assert shown() == (MADE, MADE, False)
    (tmp_path / MADE).mkdir(parents=True)
    assert shown() == (MADE, MADE, False), "an incomplete folder does not count"
    leave(tmp_path, MADE.replace(HERE, "0a1b2c3d"))
    leave(tmp_path, MADE.replace("rep1", "rep2"))
    leave(tmp_path, f"{paths.RUNS}/loading/gpu/workers=1/.rep1-{HERE}.0.pid-1-2@host")
    assert shown() == (MADE, MADE, False), "those of another identity or repeat, or of a job"


def test_attempts_of_another_spec_are_not_counted(tmp_path):
    """Three disturbed attempts with other settings do not use up those of the present ones."""
    other = MADE.replace(HERE, "0a1b2c3d")
    for suffix in ("", "-2", "-3"):
        leave(tmp_path, other + suffix, status="failed")
    disturb(tmp_path, other, f"{other}-2", f"{other}-3")
    assert shown() == (MADE, MADE, False)
    leave(tmp_path, MADE, status="failed")
    assert shown() == (f"{MADE}-2", MADE, False)


@pytest.mark.parametrize("status", ["ok", "out_of_memory"])
def test_a_result_stays_where_it_is(tmp_path, status):
    leave(tmp_path, MADE, status=status)
    assert shown() == (MADE, MADE, True)


@pytest.mark.parametrize("status", ["failed", "interrupted", ""])
def test_a_failed_attempt_stays_and_the_next_one_has_a_folder_of_its_own(tmp_path, status):
    leave(tmp_path, MADE, status=status)
    assert shown() == (f"{MADE}-2", MADE, False)
    leave(tmp_path, f"{MADE}-2", status=status)
    assert shown() == (f"{MADE}-3", f"{MADE}-2", False)
    leave(tmp_path, f"{MADE}-3")
    assert shown() == (f"{MADE}-3", f"{MADE}-3", True)


def test_attempts_are_numbers_not_words(tmp_path):
    for number in (2, 9, 10):
        leave(tmp_path, f"{MADE}-{number}", status="failed")
    assert shown() == (f"{MADE}-11", f"{MADE}-10", False)


def test_an_incomplete_attempt_is_made_again_and_an_earlier_one_counts_until_then(tmp_path):
    leave(tmp_path, MADE, status="failed")
    (tmp_path / f"{MADE}-2").mkdir()
    assert shown() == (f"{MADE}-2", MADE, False)


def test_only_the_disturbed_attempt_is_measured_again(tmp_path):
    leave(tmp_path, MADE)
    disturb(tmp_path, "runs/other")
    assert shown() == (MADE, MADE, True)
    disturb(tmp_path, "runs/other", MADE)
    assert shown() == (f"{MADE}-2", MADE, False)
    leave(tmp_path, f"{MADE}-2")
    assert shown() == (f"{MADE}-2", f"{MADE}-2", True)


@pytest.mark.parametrize("text", ["{", "[]", '"ok"', "null", "\x00"])
def test_a_damaged_outcome_is_no_result_and_its_folder_is_made_again(tmp_path, text):
    leave(tmp_path, MADE, text)
    assert shown() == (MADE, MADE, False)


@pytest.mark.parametrize("text", ["", "{}", "3", "{"])
def test_a_damaged_list_of_disturbed_runs_repeats_nothing(tmp_path, text):
    leave(tmp_path, MADE)
    disturb(tmp_path)
    (tmp_path / paths.DISTURBED.format(study=SPEC.study, device=SPEC.device)).write_text(text)
    assert shown() == (MADE, MADE, True)


def test_what_is_on_disk_is_read_once_per_plan(tmp_path):
    folders = folders_of()
    assert folders.target(SPEC) == MADE
    leave(tmp_path, MADE, status="failed")
    assert folders.target(SPEC) == MADE
    assert folders_of().target(SPEC) == f"{MADE}-2"


# A run that was not tried, because a smaller one had run out of memory

SMALLER = make_spec(cell="workers=0", levels={"workers": 0})
SMALL = run_folder(SMALLER, HERE)


def test_it_has_a_result_as_long_as_the_smaller_one_has_none(tmp_path):
    leave(tmp_path, SMALL, status="out_of_memory")
    leave(tmp_path, MADE, status="out_of_memory", smaller=SMALL)
    assert shown(smaller=[SMALLER]) == (MADE, MADE, True)


@pytest.mark.parametrize("case", ["fits", "retried", "of another identity", "not tried either"])
def test_it_is_tried_when_that_is_no_reason_any_more(tmp_path, case):
    leave(tmp_path, MADE, status="out_of_memory", smaller=SMALL)
    if case == "fits":
        leave(tmp_path, SMALL, status="out_of_memory")
        leave(tmp_path, f"{SMALL}-2")
    elif case == "retried":
        leave(tmp_path, SMALL, status="out_of_memory")
        leave(tmp_path, f"{SMALL}-2", status="out_of_memory")
    elif case == "of another identity":
        leave(tmp_path, SMALL.replace(HERE, "0a1b2c3d"), status="out_of_memory")
    else:
        leave(tmp_path, SMALL, status="out_of_memory", smaller="runs/the/smallest/one")
    assert shown(smaller=[SMALLER]) == (f"{MADE}-2", MADE, False)


def test_it_is_tried_when_the_ladder_is_gone(tmp_path):
    leave(tmp_path, SMALL, status="out_of_memory")
    leave(tmp_path, MADE, status="out_of_memory", smaller=SMALL)
    assert shown() == (f"{MADE}-2", MADE, False)


@pytest.mark.parametrize("study", ["flava-batch-search", "bridgetower-inference", "flava-scaling"])
@pytest.mark.parametrize("device", ["cpu", "a100-40gb"])
def test_smaller_runs_are_all_that_the_ladder_orders_before_it_and_no_others(copy, study, device):
    graph = copy.graph(studies=[study], devices=[device])
    found = graph.project.studies[study]
    order = {f: found.factors[f].levels for f in found.ladder}
    runs = list(graph.plan.runs.values())

    def is_smaller(less, more):
        return less.cell != more.cell and all(
            order[f].index(level) <= order[f].index(more.levels[f])
            if f in order
            else level == more.levels[f]
            for f, level in less.levels.items()
        )

    for spec in runs[:: max(len(runs) // 9, 1)]:
        expected = [run for run in runs if is_smaller(run, spec)]
        smaller = graph.smaller(spec)
        assert sorted(smaller, key=repr) == sorted(expected, key=repr)


def test_a_study_without_a_ladder_has_no_smaller_runs(copy):
    graph = copy.graph(studies=["bridgetower-dataloading"], devices=["cpu"])
    assert not any(map(graph.smaller, graph.plan.runs.values()))


def test_a_run_that_ran_out_of_memory_keeps_the_larger_ones_out_of_the_next_call(copy):
    """With identities and the ladder as a project has them."""
    search = {"studies": ["flava-batch-search"], "devices": ["h100"]}
    graph = copy.graph(**search)
    small, large = (pick(graph, size="350M", strategy="ddp", batch=batch) for batch in (64, 128))
    folder = graph.folders.target(small)
    leave(copy.root, folder, status="out_of_memory")
    larger = graph.folders.target(large)
    leave(copy.root, larger, status="out_of_memory", smaller=folder)
    done = set(graph.plan.runs) - {
        (run.study, run.device, run.cell, run.repeat) for run in copy.graph(**search).runs_to_do()
    }
    assert {cell for _, _, cell, _ in done} == {small.cell, large.cell}
    copy.edit("config/studies/flava-batch-search.yaml", "ladder: [size, batch]\n", "")
    copy.edit("config/studies/flava-batch-search.yaml", "asks: largest\n", "")
    assert copy.graph(**search).folders.target(large) == f"{larger}-2"
