import msgspec
import pytest
from report_samples import RATES, STUDY, make_project, write_results

from feedrate.config.plan import make_plan
from feedrate.report import findings, settings
from feedrate.report.rows import ClaimRow, FitRow, Inputs
from feedrate.report.settings import OverviewSettings

TIMES = "\N{MULTIPLICATION SIGN}"


def shown(project):
    param = settings.overview_settings(project, make_plan(project))
    return settings.from_param(repr(param), OverviewSettings).studies[0]


def points(project, inputs):
    fits = inputs.rows("fit.csv", FitRow, STUDY)
    claims = inputs.rows("claims.csv", ClaimRow, STUDY)
    found = findings.points(shown(project), inputs.cells(STUDY), fits, claims)
    return {point.lead: point.said for point in found}


def test_the_answer_is_a_setting_with_its_gain_and_limit(project, inputs):
    answer = findings.answer(shown(project), inputs.cells(STUDY), "cpu")
    assert answer.found
    assert answer.headline == "CPU: use data-loader workers = 1."
    assert answer.detail == (
        f"It trains 14.10 samples/s (interval 13.96 to 14.24), {TIMES}1.26 (1.23 to 1.28) the rate "
        "with workers = 0. It is compute-bound there: faster loading would gain little."
    )


def test_the_baseline_as_the_answer(tmp_path, project):
    inputs = Inputs(write_results(tmp_path, project, recommended=0))
    answer = findings.answer(shown(project), inputs.cells(STUDY), "cpu")
    assert answer.headline == "CPU: use data-loader workers = 0."
    assert "it is the baseline, and no setting is measurably faster" in answer.detail
    assert "loading holds it back" in answer.detail


def test_a_gain_within_noise_is_called_so(project, inputs):
    cells = [
        msgspec.structs.replace(cell, speedup_ci_low=0.97, speedup_ci_high=1.04)
        for cell in inputs.cells(STUDY)
    ]
    detail = findings.answer(shown(project), cells, "cpu").detail
    assert "(0.97 to 1.04) the rate with workers = 0, which is within noise." in detail


def test_without_the_baseline_there_is_no_gain(tmp_path, project):
    inputs = Inputs(write_results(tmp_path, project, bad={("cpu", 0): "failed"}))
    cells = [msgspec.structs.replace(c, speedup=None) for c in inputs.cells(STUDY)]
    detail = findings.answer(shown(project), cells, "cpu").detail
    assert "no number for the baseline (workers = 0)" in detail


def test_no_good_cell_is_no_answer(tmp_path, project):
    bad = {("cpu", workers): "failed" for workers in RATES}
    inputs = Inputs(write_results(tmp_path, project, bad=bad, cause="It broke."))
    answer = findings.answer(shown(project), inputs.cells(STUDY), "cpu")
    assert not answer.found
    assert answer.headline == "CPU: no answer yet."
    assert "None of 4 cells ended well" in answer.detail
    failed = findings.failures(shown(project), inputs.cells(STUDY))
    assert failed[0] == "CPU, workers = 0: failed. It broke."
    assert len(failed) == 4


def test_a_device_that_was_not_run(project, inputs):
    answer = findings.answer(shown(make_project(("cpu", "h100"))), inputs.cells(STUDY), "h100")
    assert answer.detail == "No cell was run on it."


def test_a_device_that_supports_nothing(project, inputs):
    cells = [c for c in inputs.cells(STUDY) if c.status == "unsupported"]
    answer = findings.answer(shown(project), cells, "cpu")
    assert answer.detail.startswith("It supports no cell of the study. The device lacks")


def test_cells_without_a_recommendation_have_their_rates_told(tmp_path, project):
    inputs = Inputs(write_results(tmp_path, project, recommended=None))
    answer = findings.answer(shown(project), inputs.cells(STUDY), "cpu")
    assert answer.headline == "CPU: no setting is recommended."
    assert "workers = 2: 14.30 samples/s" in answer.detail


def test_where_there_is_one_setting_none_is_advised(tmp_path, project):
    inputs = Inputs(write_results(tmp_path, project, recommended=None))
    cells = [
        cell
        for cell in inputs.cells(STUDY)
        if cell.levels["workers"] == 0 or cell.status == "unsupported"
    ]
    answer = findings.answer(shown(project), cells, "cpu")
    assert answer.found
    assert answer.headline == "CPU trains 11.20 samples/s."
    assert answer.detail == (
        "workers = 0, decode = host is the only setting, so there is none to choose. "
        "It is input-bound there: loading holds it back."
    )
    found = findings.points(shown(project), cells, [], [])
    assert "Why this one" not in [point.lead for point in found]
    assert "use" not in " ".join(point.said for point in found).split()


def test_runs_that_do_not_count_are_told(project, inputs):
    cells = [msgspec.structs.replace(c, ok_runs=2) for c in inputs.cells(STUDY)[:1]]
    assert findings.failures(shown(project), cells) == [
        "CPU, workers = 0: 1 of 3 runs did not count."
    ]


def test_each_finding_comes_from_the_rows(project, inputs):
    found = points(project, inputs)
    assert found["Why this one"].startswith("Use 1 worker a rank")
    assert found["What limits each setting"] == (
        "workers = 0 is input-bound (waiting 24% of the time); workers = 1, 2 and 16 are "
        "compute-bound (waiting up to 0.6% of the time)."
    )
    assert "workers = 16 (2.0%)" in found["Noise"]
    beside = found["Beside the published devices"]
    assert f"goes {TIMES}1.28 on CPU here." in beside
    assert f"Published: {TIMES}1.28 on Gaudi2 and {TIMES}1.79 on H100." in beside
    assert "Compare shapes, not rates" in beside
    assert "bridgetower large on 8 devices with batch 48" in beside
    assert found["What the published numbers say"] == (
        "H100 look compute-bound from 2 workers on. Td differs between hosts."
    )
    assert "1 of 1 agree with its own table" in found["Claims"]
    said = "Measured here: of 2, 1 held, 0 did not, and for 1 there are no data here."
    assert said in found["Claims"]


def test_a_published_device_that_was_measured_is_held_to_its_number(tmp_path):
    project = make_project(("gaudi2",))
    found = points(project, Inputs(write_results(tmp_path, project)))
    said = found["Beside the published devices"]
    assert "Published for Gaudi2 at workers = 2, decode = device: 847.7 samples/s" in said
    assert "Compare shapes" not in said


@pytest.mark.parametrize("fits", [[], None])
def test_nothing_is_said_of_what_is_not_there(project, fits):
    assert findings.points(shown(project), [], fits or [], []) == []


def test_a_single_run_has_no_interval(project, inputs):
    cells = [
        msgspec.structs.replace(c, ok_runs=1, ci_low=None, ci_high=None)
        for c in inputs.cells(STUDY)
    ]
    detail = findings.answer(shown(project), cells, "cpu").detail
    assert detail.startswith("It trains 14.10 samples/s (a single run, so no interval), ")


def test_of_a_devices_fits_the_first_is_read_out(project, inputs):
    fits = inputs.rows("fit.csv", FitRow, STUDY)
    other = [
        msgspec.structs.replace(fit, series="decode = device", reading="Of another one.")
        for fit in fits
    ]
    found = findings.points(shown(project), [], fits + other, [])
    said = [point.said for point in found if point.lead == "What ours say"]
    assert said == ["cpu: a worker hides 10.5 ms of loading."]
    published = next(p.said for p in found if p.lead == "What the published numbers say")
    assert "H100 and H100 (decode = device) look compute-bound from 2 workers on." in published


def test_a_poor_fit_is_not_read_out(project, inputs):
    fits = inputs.rows("fit.csv", FitRow, STUDY)
    good = findings.points(shown(project), [], fits, [])[-1]
    assert good == findings.Point("What ours say", "cpu: a worker hides 10.5 ms of loading.")
    poor = [msgspec.structs.replace(fit, max_error=0.181) for fit in fits]
    said = findings.points(shown(project), [], poor, [])[-1].said
    assert "is off by up to 18%" in said
