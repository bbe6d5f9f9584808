"""The findings of a study: each is made from result rows."""

import msgspec
import pytest
from msgspec.structs import replace
from report_samples import STUDY, TIMES, make_project, sheet, study_of, with_study, write_results

from feedrate.jobs.events import NOT_TRIED
from feedrate.report.answers import answer
from feedrate.report.findings import LOSSES, failures, findings
from feedrate.report.rows import ClaimRow, Results

NO_RUNS = {"Printed ratios", "Claims of the source"}
"""What rests on no run here: the source's numbers, and claims without a measurement."""


def found_in(project, inputs, *, cells=None, runs=None, claims=None, records=None):
    """The findings' sentences, by subject."""
    cells = inputs.cells(STUDY) if cells is None else cells
    claims = inputs.rows("claims.csv", ClaimRow, STUDY) if claims is None else claims
    runs = inputs.runs(STUDY) if runs is None else runs
    records = inputs.records(STUDY) if records is None else records
    found = findings(study_of(project), Results(cells, runs, claims, records=records))
    return {one.lead: one.text for one in found}


def test_each_finding_comes_from_the_rows(project, inputs):
    found = found_in(project, inputs)
    assert found["Why this setting"].startswith("Use 1 worker a rank")
    assert found["What limits each setting"] == (
        "Input-bound (waiting for data 24% of the time): workers = 0. "
        "Compute-bound (waiting for data up to 0.6% of the time): workers = 1, 2 and 16."
    )
    assert "workers = 16 (2.0%)" in found["Noise"]
    published = found["Compared with published numbers"]
    assert f"{TIMES}1.28 (1.25 to 1.30) on CPU here" in published
    assert f"{TIMES}1.28 on Gaudi2 and {TIMES}1.79 on H100" in published
    assert "model: bridgetower-large in the source, bridgetower-tiny here" in published
    assert "devices: 8 in the source, 1 here" in published


def test_each_finding_names_the_cells_that_it_rests_on(project, inputs):
    def on(lead):
        (one,) = [one for one in found if one.lead == lead]
        return [cell.cell.partition("~")[0] for cell in one.cells]

    found = findings(study_of(project), inputs.results(STUDY))
    assert on("Why this setting") == ["workers=1"]
    assert on("Noise") == ["workers=16"]
    assert on("What limits each setting") == [f"workers={n}" for n in (0, 1, 2, 16)]
    assert on("Compared with published numbers") == ["workers=0", "workers=2"]
    assert on("Our own questions") == ["workers=2", "workers=0"]
    assert {one.lead for one in found if not one.cells} == NO_RUNS


def test_what_the_answer_leaves_open_is_said_once(project, inputs):
    cells = [
        msgspec.structs.replace(c, recommended=False, open="Undecided between 1 and 2.")
        if c.status == "ok"
        else c
        for c in inputs.cells(STUDY)
    ]
    assert "1 and 2" in answer(study_of(project), Results(cells), "cpu").detail
    assert "Undecided" not in found_in(project, inputs, cells=cells)
    other = [msgspec.structs.replace(cells[0], open="Undecided at 0."), *cells[1:]]
    assert found_in(project, inputs, cells=other)["Undecided"] == "Undecided at 0."


@pytest.mark.parametrize("ladder", [[], ["workers"]])
def test_each_recommended_setting_is_named_once(tmp_path, ladder):
    """In the answer, or as another recommendation; the answer of a ladder is its fastest line."""
    project = with_study(make_project(("gaudi2",)), within=["decode"], ladder=ladder)
    inputs = write_results(tmp_path, project)
    cells = [
        msgspec.structs.replace(c, recommended=c.levels["workers"] == 2, recommendation="Use 2.")
        for c in inputs.cells(STUDY)
    ]
    assert sum(cell.recommended for cell in cells) == 2
    found = findings(study_of(project), Results(cells))
    (others,) = [one.cells for one in found if one.lead == "Other recommendations"]
    answered = answer(study_of(project), Results(cells), "gaudi2").cells
    chosen = {cell.cell for cell in cells if cell.recommended}
    assert {one.cell for one in others} == chosen - {one.cell for one in answered}
    assert len(others) == 1


def test_claims_are_counted_by_verdict(project, inputs):
    found = found_in(project, inputs)
    assert found["Printed ratios"].startswith("1 of 1 agree")
    assert found["Claims of the source"] == "1 in all: no data here (1)."
    assert found["Our own questions"] == "1 in all: holds (1)."


def test_a_published_device_that_was_measured_is_compared_with_its_number(tmp_path):
    project = make_project(("gaudi2",))
    found = found_in(project, write_results(tmp_path, project))
    said = found["Compared with published numbers"]
    assert "Gaudi2 with workers = 2, decode = device: 847.7 samples/s" in said
    assert f"here: 11.20 samples/s (11.09 to 11.31), {TIMES}0.01 the published rate." in said
    assert "Not comparable" not in said, "the runs are alike, so their rates can be compared"


def test_rates_of_single_runs_are_compared_as_such(tmp_path):
    project = make_project(("gaudi2",))
    inputs = write_results(tmp_path, project)
    ends = dict.fromkeys(("ci_low", "ci_high", "speedup_ci_low", "speedup_ci_high"))
    cells = [msgspec.structs.replace(cell, **ends) for cell in inputs.cells(STUDY)]
    said = found_in(project, inputs, cells=cells)["Compared with published numbers"]
    assert "here: 11.20 samples/s, from single runs, " in said
    assert f"{TIMES}1.28 (from single runs) on Gaudi2 here" in said


def test_losses_of_cells_that_share_runs_say_nothing(project, inputs):
    """They are equal because they are those of the same runs, not because training repeats."""
    own, *others = inputs.cells(STUDY)
    lost = {"loss_shift": 0.0, "loss_identical": True}
    shared = [msgspec.structs.replace(c, measured_as=own.cell, **lost) for c in others]
    assert "Equal losses" not in found_in(project, inputs, cells=[own, *shared])
    differs = [msgspec.structs.replace(c, loss_identical=False) for c in shared]
    assert LOSSES not in found_in(project, inputs, cells=[own, *differs])


def test_a_run_unlike_the_published_one_is_not_compared_with_its_number(tmp_path):
    project = make_project(("gaudi2",))
    other = msgspec.structs.replace(project, sheets=sheet(data="a data set", warmup_steps=3))
    found = found_in(other, write_results(tmp_path, other))
    rate, change = found["Compared with published numbers"].split("From workers = 0")
    differing = "Not comparable: data: a data set in the source, generated here"
    assert f"{differing}; warm-up steps: 3 in the source, 5 here." in rate
    assert TIMES not in rate
    assert f"{differing}." in change, "warm-up does not matter for a ratio of two settings"


def test_the_change_shown_does_not_depend_on_what_was_measured(project, inputs):
    """One device published both changes; the larger published gain counts, not our largest."""
    rows = [row for row in project.published[STUDY] if row.device == "gaudi2"]
    one = msgspec.structs.replace(project, published={STUDY: rows})
    for best in (1, 2):
        cells = [
            msgspec.structs.replace(c, speedup=9.0 if c.levels["workers"] == best else c.speedup)
            for c in inputs.cells(STUDY)
        ]
        said = found_in(one, inputs, cells=cells)["Compared with published numbers"]
        assert "From workers = 0 to workers = 2," in said
        assert f"Published: {TIMES}1.28 on Gaudi2." in said


def test_a_change_of_what_is_trained_is_compared_with_no_published_change(project, inputs):
    study = study_of(project)
    size = msgspec.structs.replace(study.factors["workers"], sets="model.size")
    found = {}
    for workers in (study.factors["workers"], size):
        one = msgspec.structs.replace(study, factors=study.factors | {"workers": workers})
        said = findings(one, Results(inputs.cells(STUDY), inputs.runs(STUDY)))
        found[workers.sets] = " ".join(finding.text for finding in said)
    assert "throughput changes by" in found["loader.workers"]
    assert "throughput changes by" not in found["model.size"]


@pytest.mark.parametrize(
    ("second", "change", "told"),
    [
        ({}, {"driver": "580.65"}, "the driver"),
        ({}, {"packages": {"torch": "2.8.0"}}, "torch and transformers"),
        ({}, {"command": "another"}, ""),
        ({"cell": "workers=77"}, {"driver": "580.65"}, ""),
        ({"status": "invalid"}, {"driver": "580.65"}, ""),
    ],
)
def test_a_setting_whose_ok_runs_had_other_software_is_named(project, inputs, second, change, told):
    run = next(run for run in inputs.runs(STUDY) if run.status == "ok")
    records = inputs.records(STUDY)
    record = records[run.folder]
    records["other"] = replace(record, provenance=replace(record.provenance, **change))
    runs = [run, replace(run, folder="other", **second)]
    said = found_in(project, inputs, runs=runs, records=records).get("Mixed software", "")
    assert (f"differ in {told}: " in said) if told else not said


def test_without_rows_there_are_no_findings(project, inputs):
    assert found_in(project, inputs, cells=[], runs=[], claims=[]) == {}


def test_loader_only_rates_are_compared_with_the_baseline(tmp_path):
    project = make_project(("gaudi2",))
    inputs = write_results(tmp_path, project)
    cells = inputs.cells(STUDY)
    first = next(c for c in cells if c.levels == {"workers": 0, "decode": "host"})
    fast = msgspec.structs.replace(
        first, cell="workers=0~decode=device", loader_samples_per_s=8000.0
    )
    others = [c for c in cells if c.levels["workers"] != 0]
    rates = iter((7900.0, 8000.0, 8100.0))
    runs = [
        msgspec.structs.replace(run, loader_samples_per_s=next(rates))
        if run.key == fast.key
        else run
        for run in inputs.runs(STUDY)
    ]
    both = [first, fast, *others]
    said = found_in(project, inputs, cells=both, runs=runs)["Loader-only throughput"]
    assert said.startswith("With workers = 0")
    assert f"the baseline 40.0 samples/s ({TIMES}1.00) and" in said
    assert f"decode = device 8,000 samples/s ({TIMES}200, 196 to 204)" in said
    assert "14.8 samples/s" in said, "the model-only throughput"
    said = found_in(project, inputs, cells=both, runs=[])["Loader-only throughput"]
    assert f"decode = device 8,000 samples/s ({TIMES}200, no interval: single runs)" in said


def test_the_model_only_rate_is_of_cells_that_compute_as_the_baseline(tmp_path):
    """Where a study also varies the batch, the median of all models alone is of none of them."""
    project = make_project(("gaudi2",))
    inputs = write_results(tmp_path, project)
    study = study_of(project)
    batch = msgspec.structs.replace(study.factors["workers"], sets="train.batch_size")
    study = msgspec.structs.replace(study, factors=study.factors | {"workers": batch})
    cells = [
        msgspec.structs.replace(c, model_samples_per_s=99.0 if c.levels["workers"] else 14.8)
        for c in inputs.cells(STUDY)
    ]
    found = findings(study, Results(cells, inputs.runs(STUDY)))
    said = next(one.text for one in found if one.lead == "Loader-only throughput")
    assert said.endswith("Model-only throughput is 14.8 samples/s.")


def test_cells_that_ran_out_of_memory_are_counted_and_so_are_the_skipped_ones(tmp_path):
    project = with_study(make_project(), ladder=["workers"])
    bad = {("cpu", 2): "out_of_memory", ("cpu", 16): "out_of_memory"}
    inputs = write_results(tmp_path, project, bad=bad)
    cells = [
        msgspec.structs.replace(cell, cause=f"{NOT_TRIED}workers=2 ran out of memory.")
        if cell.levels["workers"] == 16 and cell.status == "out_of_memory"
        else cell
        for cell in inputs.cells(STUDY)
    ]
    said = found_in(project, inputs, cells=cells)["Out of memory"]
    assert said.startswith("1 cell ran out of memory")
    assert "; 1 " in said


def test_without_a_ladder_running_out_of_memory_is_a_failure(tmp_path, project):
    inputs = write_results(tmp_path, project, bad={("cpu", 16): "out_of_memory"})
    (failure,) = failures(study_of(project), inputs.cells(STUDY))
    assert failure.lead == "CPU, workers = 16"
    assert failure.text.startswith("out of memory")
    assert [cell.levels["workers"] for cell in failure.cells] == [16]
    assert "Out of memory" not in found_in(project, inputs)


def test_runs_that_do_not_count_are_failures(project, inputs):
    cells = [msgspec.structs.replace(c, ok_runs=2) for c in inputs.cells(STUDY)[:1]]
    (failure,) = failures(study_of(project), cells)
    assert (failure.lead, failure.text[:11]) == ("CPU, workers = 0", "1 of 3 runs")
    assert failure.cells == cells


def test_short_epochs_are_told_and_compared_with_no_rate(tmp_path):
    project = make_project(("gaudi2",))
    inputs = write_results(tmp_path, project)
    cells = [
        msgspec.structs.replace(cell, short_epochs=True, steps_per_epoch=3)
        for cell in inputs.cells(STUDY)
    ]
    short = {"short_epochs": True, "steps_per_epoch": 3}
    runs = [msgspec.structs.replace(run, **short) for run in inputs.runs(STUDY)]
    found = found_in(project, inputs, cells=cells, runs=runs)
    assert "workers = 2 with decode = host (3)" in found["Short epochs"]
    said = found["Compared with published numbers"]
    assert said.count("Not comparable: too few steps per epoch here: 3.") == 2
