"""Studies that climb until memory is full: what fitted is the answer, what did not is a result."""

import msgspec
import pytest
from feedrate.report.settings import FigureSettings, OverviewSettings
from report_samples import RATES, STUDY, make_project, write_results

from feedrate.config.plan import make_plan
from feedrate.jobs.pruning import NOT_TRIED
from feedrate.report import figure, findings, settings
from feedrate.report.figures import canvas
from feedrate.report.rows import Inputs


@pytest.fixture
def climbing():
    """The sample study with its workers as a ladder."""
    project = make_project()
    study = msgspec.structs.replace(project.studies[STUDY], ladder=["workers"])
    return msgspec.structs.replace(project, studies={STUDY: study})


def shown(project):
    param = settings.overview_settings(project, make_plan(project))
    return settings.from_param(repr(param), OverviewSettings).studies[0]


def drawn(project, inputs, monkeypatch):
    monkeypatch.setitem(canvas._RC, "svg.fonttype", "none")
    param = settings.figure_settings(project, STUDY, "reach")
    return figure.render(settings.from_param(repr(param), FigureSettings), inputs)


def test_the_answer_is_how_far_it_went_and_what_was_fastest(tmp_path, climbing):
    bad = {("cpu", 16): "out_of_memory"}
    cells = Inputs(write_results(tmp_path, climbing, bad=bad)).cells(STUDY)
    answer = findings.answer(shown(climbing), cells, "cpu")
    assert answer.found
    assert answer.headline == "CPU: a data-loader workers of 2 fits (decode = host)."
    assert answer.detail == "decode = host: up to 2, fastest with 2 (14.30 samples/s)."
    assert findings.failures(shown(climbing), cells) == []


def test_where_nothing_fitted_that_is_the_answer(tmp_path, climbing):
    bad = {("cpu", workers): "out_of_memory" for workers in RATES}
    cells = Inputs(write_results(tmp_path, climbing, bad=bad)).cells(STUDY)
    answer = findings.answer(shown(climbing), cells, "cpu")
    assert not answer.found
    assert answer.headline == "CPU: no data-loader workers fitted."


def test_what_ran_out_of_memory_is_counted_and_what_was_left_out_for_it(tmp_path, climbing):
    bad = {("cpu", 2): "out_of_memory", ("cpu", 16): "out_of_memory"}
    cells = [
        msgspec.structs.replace(cell, cause=f"{NOT_TRIED}workers=2 ran out of memory.")
        if cell.levels["workers"] == 16 and cell.status == "out_of_memory"
        else cell
        for cell in Inputs(write_results(tmp_path, climbing, bad=bad)).cells(STUDY)
    ]
    found = {p.lead: p.said for p in findings.points(shown(climbing), cells, [], [])}
    assert found["Out of memory"] == (
        "1 cell ran out of it, which is a result; 1 that ask for no less were not tried."
    )


def test_without_a_ladder_to_run_out_of_memory_is_a_failure(tmp_path):
    project = make_project()
    inputs = Inputs(write_results(tmp_path, project, bad={("cpu", 16): "out_of_memory"}))
    (failure,) = findings.failures(shown(project), inputs.cells(STUDY))
    assert failure.startswith("CPU, workers = 16: out of memory")


def test_comparisons_that_cross_no_size_are_told_against_the_sizes_own_baseline(tmp_path):
    project = make_project()
    study = msgspec.structs.replace(
        project.studies[STUDY], within=["decode"], baseline={"workers": 0, "decode": "device"}
    )
    project = msgspec.structs.replace(project, studies={STUDY: study})
    inputs = Inputs(write_results(tmp_path, project))
    answer = findings.answer(shown(project), inputs.cells(STUDY), "cpu")
    assert answer.headline == "CPU: use data-loader workers = 1, decode = host."
    assert "the rate with workers = 0, decode = host" in answer.detail


def test_the_figure_shows_what_fitted_and_what_the_source_states(tmp_path, climbing, monkeypatch):
    bad = {("cpu", 16): "out_of_memory"}
    svg = drawn(climbing, Inputs(write_results(tmp_path, climbing, bad=bad)), monkeypatch)
    assert "CPU: data-loader workers 0" in svg
    assert "CPU: the largest data-loader workers that fits" in svg
    assert ">14.30<" in svg or ">14.3<" in svg
    assert "Stated by A post on data loading" in svg
    assert "3 warm-up steps left out." in svg


def test_the_figure_says_where_nothing_fitted(tmp_path, climbing, monkeypatch):
    bad = {("cpu", workers): "out_of_memory" for workers in RATES}
    svg = drawn(climbing, Inputs(write_results(tmp_path, climbing, bad=bad)), monkeypatch)
    assert "nothing to draw" in svg
