"""The data of each figure: what is drawn is what the result files say."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from report_samples import MODEL_ALONE, RATES, golden, make_project, write_results

from feedrate.core import paths
from feedrate.report import text
from feedrate.report.chart import PANELS, all_figures
from feedrate.report.study import MOST, StudyResults

FIGURES = {figure.name: figure for figure in all_figures()}
WORKERS = "data-loader workers"


def picture(name, study):
    return FIGURES[name].draw(study)


def panel(name, study):
    """The only panel of a figure."""
    (only,) = picture(name, study).panels
    return only


def changed(study, change):
    """The study with other rows of cells.csv."""
    again = StudyResults(study.plan, study.folder.parent)
    again.cells = [replace(cell, **change(cell)) for cell in again.cells]
    return again


def series(panel):
    return {one.name: [tuple(mark)[:4] for mark in one.marks] for one in panel.series}


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Makes a study with results in the working folder."""
    monkeypatch.chdir(tmp_path)

    def study(devices=("cpu",), levels=(0, 1, 2, 16), bad=None, edit=lambda r: r, **changes):
        for level in levels:
            monkeypatch.setitem(RATES, level, RATES.get(level, 10 + level / 10))
        project = make_project(devices, levels, **changes)
        return write_results(tmp_path, project, bad, edit=edit)

    return study


def test_there_are_six_figures_and_the_first_screen_has_what_a_study_asks():
    assert list(FIGURES) == ["answer", "gain", "latency", "reach", "loss", "steps"]
    assert [name for name, one in FIGURES.items() if one.part == "answer"] == list(FIGURES)[:4]


def bars(panel):
    """The marks of all bars, from top to bottom."""
    return sorted(tuple(mark)[:4] for one in panel.series for mark in one.marks)


def test_settings_that_compute_differently_are_compared_by_their_rates():
    study = golden("vit-speedups")
    shown, cells = panel("answer", study), study.on_first_screen("cpu")
    rows = [(cell.samples_per_s, cell.ci_low, cell.ci_high) for cell in cells]
    assert [mark[1:] for mark in bars(shown)] == rows
    assert [row.words for row in shown.rows] == [text.with_interval(*row) for row in rows]
    assert [row.strong for row in shown.rows] == [cell.use for cell in cells]
    assert shown.rule is None, "each has a model alone of its own"


def test_shares_of_the_model_alone_tell_the_gains_and_what_is_still_to_gain():
    """The figure, the speed-ups and the limits are the same numbers."""
    study = golden("dataloading-levels")
    shown, cells = panel("answer", study), study.on_first_screen("cpu")
    shares = [mark[1] / 100 for mark in bars(shown)]
    base = shares[cells.index(study.baseline_cell(cells[0]))]
    assert [share / base for share in shares] == pytest.approx([c.speedup for c in cells], rel=0.01)
    for share, cell in zip(shares, cells, strict=True):
        gain = max(1 / share - 1, 0)
        assert cell.gain_low <= gain <= cell.gain_high
    assert shown.rule[0] == 100


def test_the_answer_names_its_levels_and_the_setting_to_use(make):
    study = make()
    shown = panel("answer", study)
    assert [row.name for row in shown.rows] == ["0", "1", "2", "16"]
    assert shown.heads[0] == WORKERS
    assert bars(shown)[1][1] == pytest.approx(100 * RATES[1] / MODEL_ALONE)
    assert [row.strong for row in shown.rows] == [False, True, False, False]
    assert "1 loader worker" in picture("answer", study).title


def test_a_setting_by_itself_is_no_choice(make):
    study = make(levels=(0,))
    assert study.answer("cpu").compared == 1
    assert [row.strong for row in panel("answer", study).rows] == [False]


def test_a_cell_without_a_number_has_its_reason_and_a_disturbed_one_no_share(make):
    bad = {("cpu", 2): "invalid", ("cpu", 16): "out_of_memory"}
    shown = panel("answer", make(bad=bad))
    assert [row.words for row in shown.rows][2:] == ["provisional", "out of memory"]
    assert [mark[0] for mark in bars(shown)] == [0, 1]


def test_the_setting_that_may_be_faster_is_on_the_first_screen():
    study = golden("dataloading-levels")
    answer = study.answer("cpu")
    assert answer.nearest == "decode=cache~scaled=false~workers=2"
    assert answer.nearest in [cell.cell for cell in study.on_first_screen("cpu")]


def test_the_answer_of_many_settings_keeps_the_fastest_the_baseline_and_the_one_to_use(make):
    study = make(levels=range(17))
    rows = panel("answer", study).rows
    assert len(rows) == MOST
    assert rows[0].name == "0"
    assert sum(row.strong for row in rows) == 1


def test_an_interval_that_says_nothing_does_not_flatten_the_bars(make):
    study = changed(make(), lambda c: {"model_ratio_low": 1e-6} if c.levels["workers"] == 2 else {})
    assert panel("answer", study).x_limits[1] == pytest.approx(3 * 105 * RATES[2] / MODEL_ALONE)
    assert panel("answer", make()).x_limits[1] == 105


def test_each_device_has_a_panel_with_its_name_and_only_if_it_has_a_rate(make):
    bad = {("gaudi2", level): "failed" for level in RATES}
    study = make(("cpu", "gaudi2", "h100"), bad=bad)
    assert [one.title for one in picture("answer", study).panels] == ["CPU", "H100"]
    nothing = make(bad={("cpu", level): "failed" for level in RATES})
    assert [name for name in FIGURES if picture(name, nothing)] == []


def test_latencies_are_medians_with_the_95th_percentile_and_lines_have_one_look():
    study = golden("bridgetower-inference")
    shown = picture("latency", study)
    assert [one.title for one in shown.panels] == ["contrastive", "clip"]
    (baseline,) = (one for one in shown.panels[0].series if one.name == "baseline")
    levels = {**study.study.baseline, "batch": 8}
    cell = study.cell("cpu", levels)
    mark = baseline.marks[shown.panels[0].x_names.index("8")]
    assert mark.value == pytest.approx(1000 * cell.step_time_median_s)
    assert mark.high == pytest.approx(1000 * cell.step_time_p95_s)
    looks = {(s.name, s.look.marker) for one in shown.panels for s in one.series}
    assert len(looks) == len({name for name, _ in looks}) == len({look for _, look in looks})


def test_reach_shows_the_largest_level_that_fits_and_the_first_that_does_not(make):
    bad = {("cpu", level): "out_of_memory" for level in (2, 16)}
    shown = panel("reach", make(bad=bad, asks="largest", ladder=["workers"]))
    assert shown.x_names == ["0", "1", "2", "16"]
    assert series(shown) == {"fits": [(0, 1, None, None)], "out of memory": [(0, 2, None, None)]}
    assert shown.rows[0].words == f"{text.number(RATES[1], 2)} · 1.21"


def test_scores_are_before_after_and_by_chance(make):
    study = make(levels=(0,), asks="learning")
    shown = panel("gain", study)
    assert picture("answer", study) is None
    places = [[mark[1] for mark in marks] for marks in series(shown).values()]
    chance, before, after = places
    assert chance == pytest.approx([20, 25, 25, 100 / 6])
    assert before == pytest.approx([22, 27, 27, 100 / 6 + 2])
    assert after == pytest.approx([52, 57, 57, 100 / 6 + 32])
    assert shown.rows[0].words == "52%"


def test_several_settings_are_compared_by_their_first_score(make):
    shown = panel("gain", make(asks="learning"))
    assert [row.name for row in shown.rows] == ["0", "1", "2", "16"]
    assert shown.title == "Right caption of five"


def test_losses_are_drawn_where_they_depart_from_the_baseline_s(make):
    study = make()
    assert picture("loss", study) is None
    study = changed(study, lambda cell: {"loss_departs": cell.levels["workers"] == 2})
    lost = {(2, 1)}
    study.traces = [t for t in study.traces if (t.run.levels["workers"], t.run.repeat) not in lost]
    shown = panel("loss", study)
    assert [one.name for one in shown.series] == ["no loader worker", "2 loader workers"]
    assert shown.series[0].marks[0].value == pytest.approx(2.5 / 1.05)


def test_steps_have_one_scale_and_the_first_step_its_time_in_words(make):
    study = make(levels=(0, 1, 2, 3, 16))
    shown = picture("steps", study).panels
    assert len(shown) == PANELS
    assert len({one.y_limits for one in shown}) == 1
    assert shown[0].title.endswith("no loader worker, first step 3.10 s")
    assert shown[0].span[:2] == (0.5, 5.5)
    assert len(series(shown[0])["a step"]) == 40


def test_an_events_file_that_cannot_be_read_leaves_its_run_out(make):
    study = make()
    for run in study.runs:
        if run.levels["workers"] == 1 and run.status == "ok":
            Path(run.folder, paths.EVENTS_NAME).write_text('{"event"\n')
    assert len(picture("steps", study).panels) == 3
