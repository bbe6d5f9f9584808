"""Which runs belong to a set of results."""

import json

import pytest

from feedrate.core.errors import ExpectedError
from feedrate.results.comparison import read_results, read_runs, run_set, run_sets
from result_sets import AFTER, PACKAGES, runs, write_set

NEW = PACKAGES | {"torch": "2.9.0"}


def history(*cells):
    """The runs of cells, the newest first."""
    return sorted((run for c in cells for run in c), key=lambda r: r["started_at"], reverse=True)


def names(found):
    return {run["name"] for run in found}


def cell(workers, day=1, packages=PACKAGES, **changes):
    return runs(workers, 10.0, day=day, packages=packages, **changes)


def test_a_set_has_one_code_and_one_software():
    """Cells import different code: what a call of Snakemake measured belongs together."""
    old = cell(0), cell(1, source_digest="decoder 1")
    new = cell(0, 2, NEW), cell(1, 2, NEW, source_digest="decoder 1")
    found = history(*old, *new)
    assert names(run_set(found, "00010000")) == set()
    assert names(run_set(found, "00010001")) == names(history(*old))
    assert names(run_set(found, "00020101")) == names(history(*new))
    assert [names(one) for one in run_sets(found)] == [names(history(*c)) for c in (new, old)]
    assert [one[0]["name"] for one in run_sets(found)] == ["00020101", "00010101"]


def test_an_edit_of_one_cells_code_leaves_the_other_cells_in_both_sets():
    kept, old = cell(0), cell(1, source_digest="decoder 1")
    new = [*cell(1, 2, source_digest="decoder 2"), *cell(2, 2)]
    found = history(kept, old, new)
    assert names(run_set(found, old[0]["name"])) == names([*kept, *old, new[1]])
    assert names(run_set(found, new[0]["name"])) == names([*kept, *new])


def test_of_a_repeat_the_newest_run_counts():
    found = history(cell(0), cell(0, 2))
    assert names(run_set(found, "00010001")) == {"00020001"}
    assert len(list(run_sets(found))) == 1


def test_runs_that_were_not_tried_belong_to_their_call():
    untried = runs(3, None, status="out_of_memory", source_digest="code 3", device_model=None)
    found = history(cell(0), untried, cell(0, 2, NEW))
    assert names(run_set(found, "00010001")) == {"00010001", "00010301"}
    assert names(run_set(found, "00020001")) == {"00020001"}


def test_runs_are_read_from_their_outcomes_and_first_events(tmp_path):
    for name, outcome, event in (
        ("rep1-0a1b2c3d", {"started_at": "1", "source_digest": "x"}, {"packages": PACKAGES}),
        ("rep2-0a1b2c3d-2", {"started_at": "2"}, None),
    ):
        folder = tmp_path / "runs/loading/cpu/workers=0" / name
        folder.mkdir(parents=True)
        (folder / "outcome.json").write_text(json.dumps(outcome))
        if event:
            (folder / "events.jsonl").write_text(json.dumps(event) + "\n{}\n")
    (tmp_path / "runs/loading/cpu/workers=0/rep3-0a1b2c3d").mkdir()
    second, first = read_runs(tmp_path / "runs")
    assert (first["repeat"], first["name"], first["packages"]) == (1, "0a1b2c3d", PACKAGES)
    assert (second["repeat"], second["name"], second["packages"]) == (2, "0a1b2c3d-2", None)


def test_a_folder_a_clone_and_a_study_are_the_same_results(tmp_path):
    folder = write_set(tmp_path / "results", runs(0, 10.0))
    for place in (tmp_path, folder, folder / "loading"):
        (run,) = read_results(str(place))
        assert (run["cell"], run["samples_per_s"]) == ("workers=0", 10.0)


@pytest.mark.parametrize("place", ["nowhere", "0a1b2c3d"])
def test_no_results_are_one_sentence(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ExpectedError, match=place):
        read_results(place)


def test_the_newest_set_is_first():
    found = history(cell(0), cell(0, AFTER, NEW))
    assert [one[0]["packages"]["torch"] for one in run_sets(found)] == ["2.9.0", "2.8.0"]
