"""`repeats: auto`: which cells get one more repeat, and how sure each look at them must be."""

import json
from pathlib import Path
from statistics import NormalDist

import msgspec
import numpy as np
import pytest

from feedrate.config.errors import ConfigError
from feedrate.config.plan import make_plan, runnable
from feedrate.config.project import load_project
from feedrate.config.values import read_yaml
from feedrate.config.workflow import AutoRepeats
from feedrate.core import paths
from feedrate.results.columns import CELLS, CLAIMS, RUNS, with_factors
from feedrate.results.files import TableError, write_csv
from feedrate.results.next_runs import extend, next_repeats
from feedrate.results.params import claim_settings, collect_settings
from feedrate.results.statistics import look_confidence

ROOT = Path(__file__).resolve().parents[3]
STUDY = "bridgetower-dataloading"
BUDGET = {"most": 5, "hours": 1.0}
A, B, C = (f"{STUDY}/h100/{name}" for name in "ABC")


@pytest.fixture
def root(tmp_path):
    """A root with the project's own configuration, whose study plans three repeats."""
    (tmp_path / "config").symlink_to(ROOT / "config")
    (tmp_path / "results").mkdir()
    return tmp_path


def load(root, further=None, **changes):
    if further is not None:
        (root / paths.REPEATS).write_text(json.dumps(further))
    chosen = {"studies": [STUDY], "devices": ["h100"], "repeats": "auto", "auto_repeats": BUDGET}
    return load_project(root, read_yaml(ROOT / "config/config.yaml") | chosen | changes)


def cell(name, number=3, *, why="", needed=None, **others):
    key = {"study": STUDY, "device": "h100", "cell": name, "measured_as": "", "status": "ok"}
    return key | {"runs": number, "open": why, "repeats_to_decide": needed} | others


def runs_of(name, number=3, duration_s=60.0):
    return [cell(name) | {"repeat": k + 1, "duration_s": duration_s} for k in range(number)]


def claim(*cells, verdict="cannot tell"):
    return {"study": STUDY, "verdict": verdict, "cells": ";".join(f"h100/{c}" for c in cells)}


OPEN = [cell("A", why="Too close.", needed=2), cell("B", why="Too close.", needed=4), cell("C")]


def test_cells_whose_recommendation_is_open_get_one_more_repeat_each(root):
    assert next_repeats(load(root), OPEN, [], []) == {A: 4, B: 4}
    assert next_repeats(load(root), [cell("A"), cell("B")], [], []) == {}


def test_the_cells_of_a_claim_that_cannot_be_told_get_one_more_repeat_each(root):
    cells = [cell("A"), cell("B"), cell("C")]
    claims = [claim("A", "C"), claim("B", verdict="holds"), claim("B", verdict="no data here")]
    assert next_repeats(load(root), cells, claims, []) == {A: 4, C: 4}


def test_a_claim_on_a_cell_without_runs_of_its_own_repeats_the_measured_one(root):
    cells = [cell("A"), cell("B", measured_as="A"), cell("C")]
    assert next_repeats(load(root), cells, [claim("B", "C")], []) == {A: 4, C: 4}


def test_a_block_follows_only_when_the_last_one_has_ended(root):
    project = load(root, {A: 4})
    assert next_repeats(project, [cell("A", 3, why="x")], [], []) == {A: 4}
    assert next_repeats(project, [cell("A", 4, why="x")], [], []) == {A: 5}


@pytest.mark.parametrize("status", ["failed", "out_of_memory", "invalid", "unsupported"])
def test_a_cell_without_a_run_that_counts_is_not_repeated(root, status):
    assert next_repeats(load(root), [cell("A", why="x", status=status)], [], []) == {}


def test_rows_of_a_device_that_is_not_selected_count_for_nothing(root):
    other = {"device": "gaudi2"}
    cells, runs = [cell("A", why="x", **other)], [one | other for one in runs_of("A", 4, 9e9)]
    assert next_repeats(load(root), [*cells, *OPEN], [], runs) == {A: 4, B: 4}


def test_no_cell_gets_more_repeats_than_the_budget_has(root):
    project = load(root, {A: 5, B: 4})
    cells = [cell("A", 5, why="x"), cell("B", 4, why="x")]
    assert next_repeats(project, cells, [], []) == {A: 5, B: 5}


def test_hours_go_to_the_cells_that_need_the_fewest_repeats(root):
    runs = [*runs_of("A", 3, 1800.0), *runs_of("B", 3, 1801.0)]
    assert next_repeats(load(root), OPEN, [], runs) == {A: 4}
    turned = [cell("A", why="x", needed=9), cell("B", why="x", needed=1)]
    assert next_repeats(load(root), turned, [], runs) == {B: 4}
    runs = [*runs_of("A", 3, 1800.0), *runs_of("B", 3, 1800.0)]
    assert next_repeats(load(root), OPEN, [], runs) == {A: 4, B: 4}


def test_hours_that_earlier_blocks_took_are_spent(root):
    project = load(root, {A: 4, B: 4})
    cells = [cell("A", 4, why="x"), cell("B", 4, why="x")]
    runs = [*runs_of("A", 4, 1300.0), *runs_of("B", 4, 1300.0)]
    assert next_repeats(project, cells, [], runs) == {A: 4, B: 4}
    copies = [cell("C", measured_as="A") | {"repeat": 4, "duration_s": 1300.0}]
    runs = [*runs_of("A", 4, 900.0), *runs_of("B", 4, 900.0), *copies]
    assert next_repeats(project, cells, [], runs) == {A: 5, B: 5}


def test_a_cell_whose_comparison_with_accepted_results_is_open_gets_one_more(root):
    compared = [cell("A") | {"change": "cannot tell"}, cell("B") | {"change": "slower"}]
    cells = [cell("A"), cell("B")]
    assert next_repeats(load(root), cells, [], [], compared) == {A: 4}


@pytest.mark.parametrize(
    ("rates", "more"),
    [((100, 101, 102), 0), ((60, 61, 62), 0), ((70, 60, 130), 1)],
    ids=["equal", "slower", "noisy"],
)
def test_accepted_results_are_compared_where_the_budget_names_them(rates, more, root, monkeypatch):
    monkeypatch.chdir(root)
    sides = {"accepted": (100, 101, 102), "results": rates}
    for folder, those in sides.items():
        (root / folder / STUDY).mkdir(parents=True)
        rows = [
            one | {"samples_per_s": float(rate)}
            for one, rate in zip(runs_of("workers=1"), those, strict=True)
        ]
        write_csv(root / folder / "results.csv", with_factors(RUNS, {}), rows)
    tables = ((paths.CELLS_CSV, CELLS, [cell("workers=1")]), (paths.CLAIMS_CSV, CLAIMS, []))
    for path, columns, rows in tables:
        write_csv(Path(path.format(study=STUDY)), with_factors(columns, {}), rows)
    assert extend(load(root, auto_repeats=BUDGET | {"gate": "nowhere yet"})) == 0
    assert extend(load(root, auto_repeats=BUDGET | {"gate": "accepted"})) == more
    (root / "accepted/results.csv").unlink()
    with pytest.raises(TableError, match="gate: accepted"):
        extend(load(root, auto_repeats=BUDGET | {"gate": "accepted"}))


def test_each_pass_extends_the_file_that_the_next_plan_reads(root, monkeypatch):
    monkeypatch.chdir(root)
    assert extend(load(root)) == 0, "there are no tables yet"
    (root / "results" / STUDY).mkdir()
    for path, columns, rows in (
        (paths.CELLS_CSV, CELLS, OPEN),
        (paths.CLAIMS_CSV, CLAIMS, []),
        (paths.RESULTS_CSV, RUNS, runs_of("A")),
    ):
        write_csv(Path(path.format(study=STUDY)), with_factors(columns, {}), rows)
    assert extend(load(root, repeats=None)) == 0
    assert not Path(paths.REPEATS).exists()
    assert extend(load(root)) == 2
    assert load(root).further == {A: 4, B: 4}
    assert extend(load(root)) == 0, "this block has not been measured"


def test_further_repeats_are_planned_after_all_others_and_interleaved(root):
    plain = make_plan(load(root))
    first, second, *_ = dict.fromkeys(key[2] for key in plain.runs)
    further = {f"{STUDY}/h100/{first}": 5, f"{STUDY}/h100/{second}": 4, "gone/h100/x": 7}
    plan = make_plan(load(root, further))
    new = list(plan.runs.values())[len(plain.runs) :]
    assert list(plan.runs)[: len(plain.runs)] == list(plain.runs)
    assert [(s.cell, s.repeat) for s in new] == [(first, 4), (second, 4), (first, 5)]
    assert [spec.seed for spec in new] == [45, 45, 46]


def test_repeats_beyond_the_budget_are_not_made_again(root):
    """The budget was lowered, and all runs are made again: their code has changed."""
    cell = next(iter(make_plan(load(root)).runs))[2]
    further = {f"{STUDY}/h100/{cell}": 8}

    def repeats(ended, most):
        project = load(root, further, auto_repeats={"most": most})
        plan = runnable(project, make_plan(project), ended)
        return max(key[3] for key in plan.runs if key[2] == cell)

    assert repeats(lambda _: False, 8) == 8
    assert repeats(lambda _: False, 5) == 5
    assert repeats(lambda _: False, 2) == 3, "those of the study stay"
    assert repeats(lambda spec: spec.repeat <= 7, 5) == 7, "these count already"


def test_without_auto_and_without_the_file_the_plan_is_the_studys(root):
    plain = make_plan(load(root)).runs
    further = {f"{STUDY}/h100/{next(iter(plain))[2]}": 5}
    assert make_plan(load(root, further, repeats=None)).runs == plain
    assert len(make_plan(load(root, further)).runs) == len(plain) + 2
    (root / paths.REPEATS).unlink()
    assert make_plan(load(root)).runs == plain


@pytest.mark.parametrize("text", ["[]", '{"a": 0}', '{"a": "x"}', "{"])
def test_a_damaged_file_of_repeats_is_told(root, text):
    (root / paths.REPEATS).write_text(text)
    with pytest.raises(ConfigError, match=r"results/repeats.json"):
        load(root)


@pytest.mark.parametrize("changes", [{"auto_repeats": {"hours": 0}}, {"repeats": "automatic"}])
def test_a_wrong_budget_is_told(root, changes):
    with pytest.raises(ConfigError, match="not allowed"):
        load(root, **changes)
    assert msgspec.convert({}, AutoRepeats) == load(root, auto_repeats={}).config.auto_repeats


# The published constants of Pocock's bound for equally spaced looks, 5% in all (Jennison and
# Turnbull, Group Sequential Methods, 2000, table 2.1): 2.178 for two looks, 2.413 for five.


@pytest.mark.parametrize(("most", "level"), [(1, 0.95), (2, 0.97061), (5, 0.98418)])
def test_the_confidence_of_a_look_is_the_published_one(most, level):
    assert look_confidence(0.95, 1, most) == pytest.approx(level, abs=2e-5)


def test_all_looks_hold_together_as_often_as_asked_for():
    for planned, most in ((3, 12), (2, 6)):
        level = look_confidence(0.9, planned, most)
        bound = NormalDist().inv_cdf((1 + level) / 2)
        sums = np.random.default_rng(1).normal(size=(100_000, most)).cumsum(axis=1)
        looks = sums / np.sqrt(np.arange(1, most + 1))
        kept = (np.abs(looks[:, planned - 1 :]) <= bound).all(axis=1).mean()
        assert kept == pytest.approx(0.9, abs=0.004)


def test_intervals_of_an_auto_project_have_the_confidence_of_a_look(root):
    once, looked = load(root, repeats=None), load(root)
    expected = look_confidence(0.95, 3, BUDGET["most"])
    for settings in (collect_settings, claim_settings):
        values = []
        for project in (once, looked):
            args = (project, make_plan(project)) if settings is collect_settings else (project,)
            study = settings(*args).studies[STUDY]
            found = study if settings is claim_settings else study.thresholds
            values.append(found.confidence)
        assert values == [0.95, expected]
