import re
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib as mpl
import pytest
from msgspec.structs import replace
from report_rows import RATES
from report_samples import (
    EVIL,
    FIGURES,
    STUDY,
    figure,
    make_project,
    settings_of,
    with_study,
    write_results,
)

from feedrate.core import plugins
from feedrate.report import chart, drawing, text
from feedrate.report.figures import bars
from feedrate.report.lines import Line, Point
from feedrate.report.rows import Inputs


def said(svg):
    root = ET.fromstring(svg)
    return [" ".join(e.itertext()) for e in root.iter("{http://www.w3.org/2000/svg}text")]


def picture(kind, project, inputs):
    """The data of a kind of figure."""
    make = plugins.load_kind("feedrate.report.figures", kind)
    return make(settings_of(project, "figure", kind), inputs)


def drawn(picture):
    """The drawing of a picture, laid out."""
    with drawing.theme():
        made = drawing.draw(picture)
        made.draw_without_rendering()
    return made


@pytest.fixture
def many(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    project = make_project(("cpu", "gaudi2"))
    bad = {("cpu", 1): "failed", ("cpu", 16): "out_of_memory", ("gaudi2", 2): "invalid"}
    return project, write_results(tmp_path, project, bad=bad, cause=EVIL)


@pytest.mark.parametrize("kind", FIGURES)
def test_the_same_data_give_the_same_bytes(project, inputs, kind):
    first = figure(project, inputs, kind)
    with mpl.rc_context({"font.size": 30, "lines.color": "red"}):
        assert figure(project, inputs, kind) == first
    assert f"Figure of {kind}" in first
    assert not re.search(r"20\d\d-\d\d-\d\d|matplotlib", first.split("</metadata>")[0])
    # Nothing is fetched, and texts are texts, in a font that is as wide as where it was laid out.
    ET.fromstring(first)
    assert said(first)
    assert "'DejaVu Sans', Verdana, sans-serif" in first
    assert "'DejaVu Sans'" not in first.replace("'DejaVu Sans', Verdana", "")
    assert "<script" not in first
    assert not re.search(r'href="(?!#)', first)


@pytest.mark.parametrize("kind", FIGURES)
def test_many_cells_some_bad(many, kind):
    svg = figure(*many, kind)
    ET.fromstring(svg)
    assert "<script" not in svg


@pytest.mark.parametrize("kind", [k for k in FIGURES if k not in ("throughput", "speedup")])
def test_without_a_good_cell_a_sentence_replaces_the_axes(tmp_path, project, kind, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bad = {("cpu", workers): "failed" for workers in RATES}
    svg = figure(project, write_results(tmp_path, project, bad=bad), kind)
    words = " ".join(said(svg))
    assert re.search(r"\b(No|no)\b", words)
    assert "samples/s" not in words


@pytest.mark.parametrize(("kind", "failed"), [("reach", RATES), ("speedup", [0])])
def test_a_figure_without_numbers_gives_a_reason_that_its_rows_do_not_refute(
    tmp_path, project, monkeypatch, kind, failed
):
    """Batches that failed for another reason did fit, and cells beside a failed baseline ran."""
    monkeypatch.chdir(tmp_path)
    alone = replace(project, published={STUDY: []})
    bad = {("cpu", workers): "failed" for workers in failed}
    inputs = write_results(tmp_path, alone, bad=bad)
    cells = [replace(cell, speedup=None) for cell in inputs.cells(STUDY)]
    monkeypatch.setattr(Inputs, "cells", lambda *_: cells)
    words = " ".join(said(figure(alone, inputs, kind)))
    assert re.search("No (cell|baseline) has a valid result, so there is", words)


@pytest.mark.parametrize("kind", FIGURES)
def test_a_study_of_one_cell(tmp_path, kind, monkeypatch):
    monkeypatch.chdir(tmp_path)
    project = make_project(levels=(0,))
    ET.fromstring(figure(project, write_results(tmp_path, project), kind))


def test_the_answer_shows_the_setting_to_use_and_its_limit(project, inputs):
    words = said(figure(project, inputs, "answer"))
    use = "CPU (decode = host): use workers = 1 (14.10 samples/s, ×1.26 the baseline)"  # noqa: RUF001
    assert use in " ".join(words)
    for word in ("use this", "input-bound", "compute-bound", "waits 24%", "14.1", "noisy"):
        assert word in words
    for name in ("loader only", "model only", "training", "samples/s", "data-loader workers"):
        assert name in words
    assert "↑ 80.0" in words


def test_an_open_answer_draws_the_line_with_the_fastest_setting(project, inputs, monkeypatch):
    """The baseline's line was drawn, without the best setting and without a level's name."""
    host = [replace(c, recommended=False) for c in inputs.cells(STUDY) if c.status == "ok"]
    rates = ((c, 2 * (c.samples_per_s or 0), c.cell.replace("host", "device")) for c in host)
    faster = [replace(c, samples_per_s=rate, cell=name, open="?") for c, rate, name in rates]
    monkeypatch.setattr(Inputs, "cells", lambda *_: [*host, *faster])
    words = said(figure(project, inputs, "answer"))
    assert "CPU (decode = device): undecided" in words
    assert "28.6" in words


def test_throughput_shows_here_and_published_and_what_failed(many):
    words = said(figure(*many, "throughput"))
    for word in ("Here: CPU", "Here: Gaudi2", "Published: A post on data loading", "failed"):
        assert word in words
    assert any("not supported on cpu" in word.lower() for word in words)


def test_the_names_of_many_lines_stay_inside_the_figure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for workers in range(17):
        monkeypatch.setitem(RATES, workers, 40.0 + workers / 10)
    project = make_project(levels=range(17))
    settings = settings_of(project, "figure", "throughput")
    settings = replace(settings, factor="decode", published=[])  # a line for each number of workers
    inputs = write_results(tmp_path, project)
    throughput = plugins.load_kind("feedrate.report.figures", "throughput")
    made = drawn(throughput(settings, inputs))
    (axes,) = made.axes
    names = [one.get_window_extent() for one in axes.get_legend().get_texts()]
    assert len(names) == 17
    assert min(box.y0 for box in names) >= 0
    assert max(box.x1 for box in names) <= made.bbox.x1


def test_step_time_shows_the_wait_and_its_unit(project, inputs):
    words = said(figure(project, inputs, "step_time"))
    assert "time of an optimizer step (ms)" in words
    assert any(re.fullmatch(r"7\d\d ms, waits 24%", word) for word in words)
    assert "waiting for data" in words


@pytest.mark.parametrize("letters", [1, 30, 48])
def test_labels_of_bars_stay_inside_the_figure(project, inputs, letters, monkeypatch):
    monkeypatch.setattr(
        bars, "short_names", lambda cells: {cell.cell: "n" * letters for cell in cells}
    )
    made = drawn(picture("step_time", project, inputs))
    (axes,) = made.axes
    ends = [label.get_window_extent().x1 for label in axes.texts]
    assert len(ends) == len(RATES)
    assert max(ends) <= made.bbox.x1
    # And the bars keep a fair share of the room.
    assert max(bar.get_window_extent().width for bar in axes.patches) > 0.08 * made.bbox.width


@pytest.mark.parametrize(
    "words",
    [
        "Not supported on CPU: data-loader workers = 16 (needs decode_device). " * 3,
        "n" * 300,
    ],
)
@pytest.mark.parametrize("part", ["note", "sentence"])
def test_remarks_stay_inside_the_figure_and_lose_no_word(words, part):
    note = chart.Picture([chart.Panel()], notes=[words, "", words])
    made = drawn(note if part == "note" else chart.Picture(sentence=words))
    (said,) = made.texts
    box = said.get_window_extent()
    assert made.bbox.x0 <= box.x0
    assert 0.6 * made.bbox.x1 < box.x1 <= made.bbox.x1
    shown, told = ("".join(one.split()) for one in (said.get_text(), words))
    assert shown == told * (2 if part == "note" else 1)


def test_stages_are_stacked_in_their_order_and_name_what_is_not_split(project, inputs, monkeypatch):
    assert "No cell has times by stage" in " ".join(said(figure(project, inputs, "stages")))
    known = {"stage_read_s": 0.02, "stage_decode_s": 0.04, "stage_copy_s": 0.01}
    cells = [replace(cell, **known, stage_not_split="resize") for cell in inputs.cells(STUDY)]
    monkeypatch.setattr(Inputs, "cells", lambda *_: cells)
    (panel,) = picture("stages", project, inputs).panels
    first = {one.name: one.marks[0] for one in panel.series}
    assert list(first) == ["read", "decode", "copy", "median step"]
    bars = list(first.values())[:3]
    assert [bar.start for bar in bars] == pytest.approx([0, 20, 60])
    assert [bar.value for bar in bars] == pytest.approx([20, 60, 70])
    assert "split: resize" in " ".join(said(figure(project, inputs, "stages")))


def test_steps_shade_the_warm_up_and_cut_the_first(project, inputs):
    words = said(figure(project, inputs, "steps"))
    assert "warm-up, left out" in words
    assert "step 1: 3.10 s ↑" in words


def test_a_broken_events_file_leaves_a_run_out_of_the_curves(project, inputs):
    whole = figure(project, inputs, "loss")
    events = next(p for p in Path("runs").rglob("events.jsonl"))
    events.write_text('{"event": "step"}\n{"event"\nnot json\n')
    assert figure(project, inputs, "loss") != whole


def test_losses_of_a_run_that_does_not_count_are_not_drawn(project, inputs, monkeypatch):
    (whole,) = picture("loss", project, inputs).panels
    runs = [run for run in inputs.runs(STUDY) if run.status == "ok"]
    rejected = [replace(r, status="invalid") if r.levels["workers"] == 2 else r for r in runs]
    monkeypatch.setattr(Inputs, "runs", lambda *_: rejected)
    (panel,) = picture("loss", project, inputs).panels
    assert (len(whole.series), len(panel.series)) == (len(runs), len(runs) * 3 // 4)


def test_a_line_breaks_at_a_cell_that_failed_and_runs_past_one_that_was_not_asked_for():
    points = [
        Point({}, "ok", 1.0),
        Point({}, "failed"),
        Point({}, "absent"),
        Point({}, "excluded"),
        Point({}, "ok", 3.0),
    ]
    marks = chart.marks(Line("cpu", {}, False, points))
    assert [mark.place for mark in marks] == [0, 1, 4]
    assert [mark.value for mark in marks] == [1.0, None, 3.0]


def test_a_ladder_shows_each_gain_and_its_memory(project, inputs):
    words = said(figure(project, inputs, "ladder"))
    assert text.ratio(RATES[1] / RATES[0]) in words
    assert any("11.2" in word for word in words)  # the baseline's rate
    assert any("peak memory" in word for word in words)


def test_only_the_baseline_itself_is_drawn_without_a_gain(project, inputs, monkeypatch):
    """The same level with other settings has a gain over it."""
    cells = [one for one in inputs.cells(STUDY) if one.status == "ok"]
    other = [
        replace(one, cell=one.cell.replace("host", "device"), speedup=(one.speedup or 1) + 0.5)
        for one in cells
    ]
    monkeypatch.setattr(Inputs, "cells", lambda *_: [*cells, *other])
    words = said(figure(project, inputs, "ladder"))
    assert text.ratio(1.5) in words
    assert sum("samples/s" in word for word in words) == 1


def test_latency_has_a_row_of_two_panels_for_each_level_of_the_first_factor(project, inputs):
    # Along `workers`, so that `decode` separates the rows: one of its levels has data.
    left, right = picture("latency", project, inputs).panels
    assert left.title == "CPU: host"
    assert (bool(left.log), bool(right.log)) == (True, False)
    assert (left.value_label, right.value_label) == ("latency (ms)", "samples/s")
    rates = [11.2, 14.1, 14.3, 12.6]
    assert [mark.value for mark in right.series[0].marks] == pytest.approx(rates, rel=0.02)
    milliseconds = [mark.value for mark in left.series[0].marks]
    assert milliseconds == pytest.approx([8000 / rate for rate in rates], rel=0.03)


def reach(tmp_path, bad):
    project = with_study(make_project(), ladder=["workers"])
    inputs = write_results(tmp_path, project, bad=bad)
    return " ".join(said(figure(project, inputs, "reach")))


def test_reach_shows_the_levels_that_fit_and_the_statements_of_the_source(tmp_path):
    words = reach(tmp_path, {("cpu", 16): "out_of_memory"})
    assert "CPU: data-loader workers 0" in words
    assert "CPU: the largest data-loader workers that fits" in words
    assert "14.3" in words
    assert "Stated by A post on data loading" in words
    assert "3 warm-up steps left out." in words
