"""The page of an inference study: table, figure and answer."""

import msgspec
import pytest
from report_samples import STUDY, write_results

from feedrate.config.plan import make_plan
from feedrate.config.study import Exclude
from feedrate.report import figure, findings, overview, settings, table
from feedrate.report.figures import canvas
from feedrate.report.rows import Inputs
from feedrate.report.settings import FigureSettings, OverviewSettings, TableSettings

DASH = "\N{EN DASH}"


@pytest.fixture
def rendered(project, inputs):
    param = settings.table_settings(project, STUDY, "latency")
    return table.render(settings.from_param(repr(param), TableSettings), inputs)


@pytest.fixture
def answers(project):
    """What the overview knows of the sample study, as if it were inference."""
    param = settings.overview_settings(project, make_plan(project))
    study = settings.from_param(repr(param), OverviewSettings).studies[0]
    factors = {name: study.factors[name] for name in ("decode", "workers")}
    return msgspec.structs.replace(study, task="inference", factors=factors)


def test_the_table_has_three_percentiles_in_ms(rendered):
    row = rendered.split('<th scope="row">0, host</th>')[1].split("</tr>")[0]
    # Steps of 8 samples; the first run of the cell has 11.09 a second.
    for ms in ("722", "866", "1,010"):
        assert f"<td>{ms}</td>" in row
    assert "<td>24%</td>" in row, "the share of preparation"
    assert "3 of 3" in row


def test_a_column_of_mfu_stands_there_where_one_is_known(rendered, project, inputs, monkeypatch):
    assert "MFU" not in rendered
    cells = [msgspec.structs.replace(cell, mfu=0.431) for cell in inputs.cells(STUDY)]
    monkeypatch.setattr(Inputs, "cells", lambda *_: cells)
    param = settings.table_settings(project, STUDY, "latency")
    page = table.render(settings.from_param(repr(param), TableSettings), inputs)
    assert '<th scope="col">MFU</th>' in page
    assert "<td>43%</td>" in page


def test_what_a_cpu_has_for_bf16_stands_above_its_rows(project, inputs, monkeypatch):
    runs = inputs.runs(STUDY)
    some = [msgspec.structs.replace(run, bf16_instructions="avx512_bf16") for run in runs]
    monkeypatch.setattr(Inputs, "runs", lambda *_: some)
    param = settings.table_settings(project, STUDY, "latency")
    page = table.render(settings.from_param(repr(param), TableSettings), inputs)
    assert "CPU (bf16 by avx512_bf16)" in page


def test_the_figure_has_a_row_of_two_panels_for_each_level_of_the_first_factor(
    project, inputs, monkeypatch
):
    drawn = []
    monkeypatch.setattr(canvas, "to_svg", lambda drawing, _: drawn.append(drawing) or "")
    param = settings.figure_settings(project, STUDY, "latency")
    chosen = settings.from_param(repr(param), FigureSettings)
    # Along `workers`, so that `decode`, the other factor, tells the rows apart: one level has data.
    figure.render(chosen, inputs)
    left, right = drawn[0].axes
    assert left.get_title(loc="left") == "CPU: host"
    assert (left.get_yscale(), right.get_yscale()) == ("log", "linear")
    assert (left.get_ylabel(), right.get_ylabel()) == ("latency (ms)", "samples/s")
    assert list(right.lines[0].get_ydata()) == pytest.approx([11.2, 14.1, 14.3, 12.6], rel=0.02)
    milliseconds = list(left.lines[0].get_ydata())
    assert milliseconds == pytest.approx(
        [8000 / rate for rate in (11.2, 14.1, 14.3, 12.6)], rel=0.03
    )


def test_the_answer_is_the_quickest_and_the_busiest_cell(answers, inputs):
    answer = findings.answer(answers, inputs.cells(STUDY), "cpu")
    assert answer.found
    assert answer.headline.startswith("CPU: an answer takes ")
    assert answer.headline.endswith("14.30 samples/s are the most.")
    assert "with workers = 2" in answer.detail
    assert "99% within" in answer.detail
    assert "trains" not in answer.headline + answer.detail


def test_the_answer_names_the_level_that_it_is_of_where_there_are_several(answers, inputs):
    cells = [cell for cell in inputs.cells(STUDY) if cell.status == "ok"]
    other = [msgspec.structs.replace(one, cell=one.cell.replace("host", "device")) for one in cells]
    answer = findings.answer(answers, [*cells, *other], "cpu")
    assert answer.headline.endswith(" samples/s are the most with decode = host.")


def test_without_a_good_cell_there_is_no_answer(tmp_path, project, answers):
    bad = {("cpu", workers): "failed" for workers in (0, 1, 2, 16)}
    inputs = Inputs(write_results(tmp_path, project, bad=bad))
    answer = findings.answer(answers, inputs.cells(STUDY), "cpu")
    assert not answer.found
    assert answer.headline == "CPU: no answer yet."


def test_the_protocol_counts_requests(answers, inputs):
    page = overview.machines(answers, inputs.runs(STUDY))
    assert "40 requests, the first 5 left out" in page
    assert "optimizer" not in page


def test_cells_left_out_for_a_device_are_told_apart_from_those_not_run(answers, inputs):
    from feedrate.report.grid import measured_lines

    left_out = [Exclude(levels={"workers": 3}, unless_able="magic", why="w")]
    view = msgspec.structs.replace(answers, exclude=left_out)
    factors = view.factors
    more = msgspec.structs.replace(factors["workers"], levels=[0, 3, 5])
    view = msgspec.structs.replace(view, factors={**factors, "workers": more})
    line = measured_lines(view, inputs.cells(STUDY), "workers")[0]
    assert [spot.status for spot in line.spots] == ["ok", "excluded", "absent"]
