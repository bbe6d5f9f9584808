"""The answer of a study for a device: the setting to use, or the answer to another question."""

import msgspec
import pytest
from report_rows import RATES
from report_samples import STUDY, TIMES, make_project, study_of, with_study, write_results

from feedrate.report.answers import FREE_MEMORY, REPEAT, answer, recommended_cell
from feedrate.report.findings import failures, findings
from feedrate.report.rows import Results


def cells_of(tmp_path, project, **options):
    return write_results(tmp_path, project, **options).cells(STUDY)


@pytest.fixture
def cells(inputs):
    return inputs.cells(STUDY)


def changed(cells, **changes):
    return [msgspec.structs.replace(cell, **changes) for cell in cells]


def test_the_answer_is_a_setting_with_its_gain_and_limit(project, cells):
    found = answer(study_of(project), Results(cells), "cpu")
    assert found.found
    assert found.headline == "CPU: use workers = 1."
    for part in ("14.10 samples/s", "13.96 to 14.24", f"{TIMES}1.26 (1.23 to 1.28)"):
        assert part in found.detail
    assert "relative to workers = 0" in found.detail
    assert "compute-bound" in found.detail
    assert "noise" not in found.detail


def test_the_baseline_as_the_answer(tmp_path, project):
    found = answer(study_of(project), Results(cells_of(tmp_path, project, recommended=0)), "cpu")
    assert found.headline == "CPU: use workers = 0."
    assert "the baseline" in found.detail
    assert TIMES not in found.detail
    assert "input-bound" in found.detail


def test_a_gain_within_noise_is_reported_as_noise(project, cells):
    even = changed(cells, speedup_ci_low=0.97, speedup_ci_high=1.04)
    detail = answer(study_of(project), Results(even), "cpu").detail
    assert "(0.97 to 1.04)" in detail
    assert "noise may explain" in detail


def test_without_the_baseline_there_is_no_gain(tmp_path, project):
    cells = changed(cells_of(tmp_path, project, bad={("cpu", 0): "failed"}), speedup=None)
    detail = answer(study_of(project), Results(cells), "cpu").detail
    assert "baseline (workers = 0) has no number" in detail
    assert TIMES not in detail


def test_a_single_run_has_no_interval(project, cells):
    single = {"ok_runs": 1, "ci_low": None, "speedup_ci_low": None}
    found = answer(study_of(project), Results(changed(cells, **single)), "cpu")
    assert found.headline == "CPU: use workers = 1, from single runs."
    assert "14.10 samples/s (a single run, no interval)" in found.detail
    assert f"{TIMES}1.26 relative to workers = 0, from single runs." in found.detail
    detail = answer(study_of(project), Results(changed(cells, ok_runs=1)), "cpu").detail
    assert "(a single run, interval 13.96 to 14.24)" in detail, "the noise is that of other cells"


def test_no_good_cell_is_no_answer(tmp_path, project):
    bad = {("cpu", workers): "failed" for workers in RATES}
    cells = cells_of(tmp_path, project, bad=bad, cause="It broke.")
    for study in (study_of(project), msgspec.structs.replace(study_of(project), task="inference")):
        found = answer(study, Results(cells), "cpu")
        assert not found.found
        assert found.headline == "CPU: no answer yet."
        assert "None of 4 cells" in found.detail
    assert len(failures(study_of(project), cells)) == 4
    assert failures(study_of(project), cells)[0][:2] == ("CPU, workers = 0", "failed. It broke.")


@pytest.mark.parametrize("ladder", [[], ["workers"]])
def test_where_every_cell_ran_out_of_memory_that_is_the_cause(tmp_path, ladder):
    """A ladder has no list of failed cells, which could give it."""
    project = with_study(make_project(), ladder=ladder, tables=[])
    bad = {("cpu", workers): "out_of_memory" for workers in RATES}
    found = answer(study_of(project), Results(cells_of(tmp_path, project, bad=bad)), "cpu")
    assert not found.found
    assert (found.detail, found.to_do) == ("None of 4 cells fits in memory.", FREE_MEMORY)


def test_a_device_that_was_not_run(cells):
    found = answer(study_of(make_project(("cpu", "h100"))), Results(cells), "h100")
    assert not found.found
    assert "No cell" in found.detail


def test_a_device_that_supports_nothing(project, cells):
    lacking = [cell for cell in cells if cell.status == "unsupported"]
    found = answer(study_of(project), Results(lacking), "cpu")
    assert not found.found
    assert "The device lacks decode_device." in found.detail


def test_cells_without_a_recommendation_have_their_rates_listed(tmp_path, project):
    found = answer(study_of(project), Results(cells_of(tmp_path, project, recommended=None)), "cpu")
    assert found.headline == "CPU: no setting is recommended."
    assert "workers = 2: 14.30 samples/s" in found.detail
    assert "epeat" not in found.to_do, "repeats recommend nothing that is not compared"


def test_where_there_is_one_setting_none_is_recommended(tmp_path, project):
    cells = [
        cell
        for cell in cells_of(tmp_path, project, recommended=None)
        if cell.levels["workers"] == 0 or cell.status == "unsupported"
    ]
    study = study_of(project)
    found = answer(study, Results(cells), "cpu")
    assert found.found
    assert "11.20 samples/s" in found.headline
    assert "workers = 0, decode = host is the only setting" in found.detail
    assert "input-bound" in found.detail
    said = findings(study, Results(cells))
    assert "Why this setting" not in [finding.lead for finding in said]
    assert "use" not in " ".join([found.headline, *(finding.text for finding in said)]).split()


def test_a_factor_that_no_comparison_crosses_has_the_baseline_of_its_own_level(tmp_path):
    baseline = {"workers": 0, "decode": "device"}
    project = with_study(make_project(), within=["decode"], baseline=baseline)
    found = answer(study_of(project), Results(cells_of(tmp_path, project)), "cpu")
    assert found.headline == "CPU: use workers = 1, decode = host."
    assert "relative to workers = 0, decode = host" in found.detail


def test_of_levels_that_no_comparison_crosses_the_last_one_gives_the_answer(tmp_path):
    project = with_study(make_project(("gaudi2",)), within=["decode"])
    study, cells = study_of(project), cells_of(tmp_path, project)
    assert sum(cell.recommended for cell in cells) == 2
    assert recommended_cell(study, cells, "gaudi2").cell == "workers=1~decode=device"
    assert recommended_cell(study, cells, "cpu") is None


def undecided(cells, workers, why):
    return [
        msgspec.structs.replace(c, recommended=False, open=why * (c.levels["workers"] in workers))
        if c.status == "ok"
        else c
        for c in cells
    ]


def test_an_undecided_device_says_between_which_settings_and_what_would_decide(project, cells):
    why = "Undecided between 1 worker and 2 workers; about 9 repeats of each would decide."
    found = answer(study_of(project), Results(undecided(cells, (1, 2), why)), "cpu")
    assert found.found
    assert found.headline == "CPU: undecided between workers = 1 and 2."
    assert found.detail == why
    assert found.to_do == REPEAT


# Studies of memory


@pytest.fixture
def ladder():
    """The sample study with its workers as a memory ladder."""
    return with_study(make_project(), ladder=["workers"])


def test_the_answer_of_a_ladder_is_what_fits_and_what_is_fastest(tmp_path, ladder):
    cells = cells_of(tmp_path, ladder, bad={("cpu", 16): "out_of_memory"})
    found = answer(study_of(ladder), Results(cells), "cpu")
    assert found.found
    assert found.headline == "CPU: a data-loader workers of 2 fits (decode = host)."
    most = "decode = host: up to 2, fastest measured with 2 (14.30 samples/s)"
    assert found.detail.startswith(most)
    assert failures(study_of(ladder), cells) == []


def test_the_fastest_of_a_ladder_is_that_of_the_settings_with_the_largest_level(tmp_path, ladder):
    cells = cells_of(tmp_path, ladder, bad={("cpu", 16): "out_of_memory"})
    faster = [
        msgspec.structs.replace(c, cell="workers=1~decode=device", samples_per_s=99.0)
        for c in cells
        if c.cell == "workers=1~decode=host"
    ]
    hosts = [cell for cell in cells if cell.cell.endswith("host")]
    found = answer(study_of(ladder), Results([*hosts, *faster]), "cpu")
    assert found.to_do.startswith("Use 2, the fastest with decode = host (14.30 samples/s)")
    assert "decode = device: up to 1, fastest measured with 1 (99.00 samples/s)" in found.detail


def test_the_end_of_a_ladder_is_unknown_only_where_nothing_ran_out_of_memory(tmp_path, ladder):
    cells = [c for c in cells_of(tmp_path, ladder) if c.status == "ok"]
    full = changed([c for c in cells if c.levels["workers"] == 1], status="out_of_memory")
    full = [msgspec.structs.replace(c, cell=c.cell.replace("host", "device")) for c in full]
    to_do = answer(study_of(ladder), Results([*cells, *full]), "cpu").to_do
    assert "No level ran out of memory with decode = host: add larger ones" in to_do


def test_where_nothing_fits_that_is_the_answer(tmp_path, ladder):
    bad = {("cpu", workers): "out_of_memory" for workers in RATES}
    found = answer(study_of(ladder), Results(cells_of(tmp_path, ladder, bad=bad)), "cpu")
    assert not found.found
    assert "no data-loader workers fits" in found.headline


@pytest.mark.parametrize("status", ["failed", "unsupported", ""])
def test_that_nothing_fits_takes_cells_that_ran_out_of_memory(tmp_path, ladder, status):
    bad = {("cpu", workers): status for workers in RATES if status}
    cells = cells_of(tmp_path, ladder, bad=bad) if status else []
    found = answer(study_of(ladder), Results(cells), "cpu")
    assert not found.found
    assert "fits" not in found.headline


# Studies of inference


@pytest.fixture
def inference(project):
    """The sample study as if it were one of inference, with `decode` as its first factor."""
    study = study_of(project)
    factors = {name: study.factors[name] for name in ("decode", "workers")}
    return msgspec.structs.replace(study, task="inference", factors=factors)


def test_the_answer_of_inference_is_the_lowest_latency_and_the_highest_throughput(inference, cells):
    found = answer(inference, Results(cells), "cpu")
    assert found.found
    assert "565 ms" in found.headline
    assert found.headline.endswith("14.30 samples/s.")
    assert "measured" in found.headline
    assert "with workers = 2" in found.detail
    assert found.to_do == (
        "Use workers = 2, decode = host. It is not measurably faster than "
        "workers = 1 with decode = host. Latencies have no interval."
    )
    assert "99th percentile" in found.detail
    assert "raining" not in found.headline + found.detail


def test_a_throughput_that_the_intervals_set_apart_is_told_from_all_others(inference, cells):
    sure = [
        msgspec.structs.replace(cell, ci_low=cell.samples_per_s, ci_high=cell.samples_per_s)
        for cell in cells
        if cell.status == "ok"
    ]
    found = answer(inference, Results(sure), "cpu")
    assert found.to_do == "Use workers = 2, decode = host. Latencies have no interval."


def test_a_cell_that_shares_the_runs_of_another_is_no_further_setting(project, inference, cells):
    one, *_ = changed([c for c in cells if c.status == "ok"], recommended=False)
    shares = {"cell": "workers=2~decode=host", "measured_as": one.cell}
    both = [one, *changed([one], **shares)]
    assert (
        "is the only setting that was tried."
        in answer(study_of(project), Results(both), "cpu").detail
    )
    assert answer(inference, Results(both), "cpu").to_do.startswith("Nothing to choose")
