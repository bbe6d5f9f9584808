"""The findings of a study: each is made from result rows."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from report_samples import STUDY, TIMES, make_project, sheet, study_of, with_study, write_results

from feedrate.config.study import Factor
from feedrate.jobs.events import NOT_TRIED
from feedrate.report.answers import answer
from feedrate.report.findings import LOSSES, failures, findings
from feedrate.report.rows import ClaimRow, Inputs, Results
from feedrate.results.record import read_record, write_record
from feedrate.results.verdicts import MODEL_OPEN, START_LESS, STARTS

NO_RUNS = {"Printed ratios", "Claims of the source"}
"""What rests on no run here: the source's numbers, and claims without a measurement."""


def found_in(project, inputs, *, cells=None, runs=None, claims=None):
    """The findings' sentences, by subject."""
    cells = inputs.cells(STUDY) if cells is None else cells
    claims = inputs.rows("claims.csv", ClaimRow, STUDY) if claims is None else claims
    runs = inputs.runs(STUDY) if runs is None else runs
    found = findings(study_of(project), Results(cells, runs, claims))
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


def test_the_same_question_at_several_levels_is_asked_once(project, inputs):
    study = study_of(project)
    batch = Factor(sets="train.batch_size", levels=[8, 16, 32])
    study = msgspec.structs.replace(
        study,
        factors=study.factors | {"batch": batch},
        baseline=study.baseline | {"batch": 8},
        within=["batch"],
    )
    cells = [
        msgspec.structs.replace(
            cell,
            cell=f"{cell.cell}~batch={at}",
            recommended=False,
            open=f"Undecided at {at}.",
        )
        for at in batch.levels
        for cell in inputs.cells(STUDY)
        if cell.status == "ok" and cell.levels["workers"] in (1, 2)
    ]

    def said(cells):
        return {one.lead: one.text for one in findings(study, Results(cells))}["Undecided"]

    together = "With batch = 8 and 16: undecided between workers = 1 and 2"
    assert said(cells).startswith(together)
    assert said(cells).count("undecided") == 1
    assert said(cells[:4]) == "Undecided at 8."


@pytest.mark.parametrize("ladder", [[], ["workers"]])
def test_each_recommended_setting_is_named_once(tmp_path, ladder):
    """In the answer, or as another recommendation; the answer of a ladder is its fastest line."""
    project = with_study(make_project(("gaudi2",)), within=["decode"], ladder=ladder)
    inputs = Inputs(write_results(tmp_path, project))
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
    found = found_in(project, Inputs(write_results(tmp_path, project)))
    said = found["Compared with published numbers"]
    assert "Gaudi2 with workers = 2, decode = device: 847.7 samples/s" in said
    assert f"here: 11.20 samples/s (11.09 to 11.31), {TIMES}0.01 the published rate." in said
    assert "Not comparable" not in said, "the runs are alike, so their rates can be compared"


def test_rates_of_single_runs_are_compared_as_such(tmp_path):
    project = make_project(("gaudi2",))
    inputs = Inputs(write_results(tmp_path, project))
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


@pytest.mark.parametrize(("devices", "noun"), [(("cpu",), "setting"), (("cpu", "h100"), "cell")])
def test_losses_of_several_devices_are_of_cells_not_settings(tmp_path, devices, noun):
    project = make_project(devices)
    inputs = Inputs(write_results(tmp_path, project))
    good = [cell for cell in inputs.cells(STUDY) if cell.status == "ok"]
    lost = [msgspec.structs.replace(c, loss_shift=0.0, loss_identical=True) for c in good]
    said = found_in(project, inputs, cells=lost)["Equal losses"]
    assert said.startswith(f"The losses of {len(good)} {noun}s equal")
    lost = [msgspec.structs.replace(c, loss_identical=False) for c in lost]
    assert f"({len(good)} {noun}s compared)" in found_in(project, inputs, cells=lost)[LOSSES]


def test_a_run_unlike_the_published_one_is_not_compared_with_its_number(tmp_path):
    project = make_project(("gaudi2",))
    other = msgspec.structs.replace(project, sheets=sheet(data="a data set", warmup_steps=3))
    found = found_in(other, Inputs(write_results(tmp_path, other)))
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
    ("verdict", "words"),
    [("mixed", "Limited by no single cause"), ("memory-limited", "Memory-limited")],
)
def test_verdicts_are_written_out(project, inputs, verdict, words):
    cells = [msgspec.structs.replace(cell, verdict=verdict) for cell in inputs.cells(STUDY)]
    said = found_in(project, inputs, cells=cells)["What limits each setting"]
    assert said.startswith(words)


def test_what_the_model_alone_could_do_is_said_where_only_the_wait_decided(project, inputs):
    first, second, *_ = (cell for cell in inputs.cells(STUDY) if cell.status == "ok")
    open_ = f"{MODEL_OPEN} is at least 1.1 times as fast as training."
    cells = [
        msgspec.structs.replace(first, verdict="input-bound", why=open_),
        msgspec.structs.replace(second, verdict="undecided", why=open_),
    ]
    said = found_in(project, inputs, cells=cells)["What limits each setting"]
    assert said.count("how much faster the model alone is, is undecided") == 1
    assert said.startswith("Input-bound (waiting for data")
    known = [msgspec.structs.replace(cell, verdict="undecided") for cell in cells]
    known = [known[0], msgspec.structs.replace(known[1], why="The loader has little headroom.")]
    words = found_in(project, inputs, cells=known)["What limits each setting"]
    assert words.count("Undecided") == 1, "one sentence for each verdict"


def test_starts_of_epochs_are_named_where_a_verdict_rests_on_them(project, inputs):
    """A setting that waited 4.8% of the time was said to wait "up to 39%" with another one."""
    waits, *others = (cell for cell in inputs.cells(STUDY) if cell.status == "ok")
    waits = msgspec.structs.replace(waits, epoch_start_share=0.02)
    starts = {"verdict": "input-bound", "why": f"{STARTS} 17%.", "epoch_start_share": 0.17}
    first, *rest = others
    cells = [waits, msgspec.structs.replace(first, **starts), *rest]
    limits = found_in(project, inputs, cells=cells)["What limits each setting"]
    waiting, starting, _ = limits.split(". ", 2)
    assert waiting == "Input-bound (waiting for data 24% of the time): workers = 0"
    assert starting.startswith("Input-bound (starting epochs 17% of the time, ")
    assert starting.endswith(": workers = 1")
    assert limits.endswith(START_LESS)
    assert "where workers end with each epoch" in START_LESS, "studies set it already"
    without = found_in(project, inputs, cells=[waits, *rest])["What limits each setting"]
    assert START_LESS not in without


def test_a_level_of_the_baseline_is_named_where_another_cell_differs_in_it(project, inputs):
    """Two storages with and without workers were once "warm and cold are input-bound"."""
    host = [cell for cell in inputs.cells(STUDY) if cell.status == "ok"]
    device = [msgspec.structs.replace(c, cell=c.cell.replace("host", "device")) for c in host]
    cells = [
        msgspec.structs.replace(c, verdict="input-bound" if c.levels["workers"] == 0 else "mixed")
        for c in [*host, *device]
    ]
    said = found_in(project, inputs, cells=cells)["What limits each setting"]
    assert said.startswith("Input-bound (waiting for data up to 24% of the time): workers = 0")
    assert "workers = 0 with decode = host and device. Limited by" in said
    cells = [
        msgspec.structs.replace(c, verdict="mixed" if c.levels["decode"] == "host" else "undecided")
        for c in [*host, *device]
    ]
    said = found_in(project, inputs, cells=cells)["What limits each setting"]
    assert ": decode = host with workers = 0, 1, 2 and 16. Undecided" in said


def two_by_two(inputs):
    """Cells with 0 and 1 workers, each with both decode paths."""
    host = [c for c in inputs.cells(STUDY) if c.status == "ok" and c.levels["workers"] in (0, 1)]
    device = [msgspec.structs.replace(c, cell=c.cell.replace("host", "device")) for c in host]
    return [*host, *device]


def test_a_factor_that_one_group_names_is_named_in_all(project, inputs):
    cells = [
        msgspec.structs.replace(c, verdict="mixed" if c.cell.startswith(alone) else "undecided")
        for c in two_by_two(inputs)
        for alone in ["workers=0~decode=host"]
    ]
    said = found_in(project, inputs, cells=cells)["What limits each setting"]
    assert ": decode = host with workers = 1; decode = device with workers = 0 and 1." in said
    assert "; workers = 0" not in said, "only names of one kind are separated by a semicolon"


def test_a_long_list_of_settings_becomes_their_number(project, inputs):
    one = two_by_two(inputs)[0]
    cells = [
        msgspec.structs.replace(
            one,
            cell=one.cell.replace("host", f"path-number-{number}"),
            verdict="mixed" if number else "undecided",
        )
        for number in range(20)
    ]
    said = found_in(project, inputs, cells=cells)["What limits each setting"]
    assert "path-number-0" in said
    assert said.endswith(" of the time): 19 of 20 settings.")
    assert "path-number-7" not in said


def test_parts_that_are_not_ceilings_are_a_sentence_each(project, inputs):
    parts = {0: "loader", 1: "loader;model", 2: "loader;model"}
    cells = [
        msgspec.structs.replace(cell, below_rate=parts.get(cell.levels["workers"], ""))
        for cell in inputs.cells(STUDY)
    ]
    said = found_in(project, inputs, cells=cells)["Ceilings below the rate"]
    assert said.endswith(
        "are not ceilings. Loader: workers = 0. Loader and model: workers = 1 and 2."
    )


def test_noisy_settings_have_a_level_of_each_factor_that_one_of_them_needs(project, inputs):
    cells = [msgspec.structs.replace(c, noisy=True) for c in two_by_two(inputs)]
    said = found_in(project, inputs, cells=cells)["Noise"]
    for cell in cells:
        workers, decode = cell.levels["workers"], cell.levels["decode"]
        assert f"workers = {workers} with decode = {decode} (" in said


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
    record = read_record(Path(run.record))
    other = replace(record, provenance=replace(record.provenance, **change))
    write_record(Path("other.json"), other)
    runs = [run, replace(run, record="other.json", **second)]
    said = found_in(project, inputs, runs=runs).get("Mixed software", "")
    assert (f"differ in {told}: " in said) if told else not said


def test_without_rows_there_are_no_findings(project, inputs):
    assert found_in(project, inputs, cells=[], runs=[], claims=[]) == {}


def test_loader_only_rates_are_compared_with_the_baseline(tmp_path):
    project = make_project(("gaudi2",))
    inputs = Inputs(write_results(tmp_path, project))
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
    inputs = Inputs(write_results(tmp_path, project))
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


def test_a_single_decode_path_is_not_compared(project, inputs):
    assert "Loader-only throughput" not in found_in(project, inputs)


def test_cells_that_ran_out_of_memory_are_counted_and_so_are_the_skipped_ones(tmp_path):
    project = with_study(make_project(), ladder=["workers"])
    bad = {("cpu", 2): "out_of_memory", ("cpu", 16): "out_of_memory"}
    inputs = Inputs(write_results(tmp_path, project, bad=bad))
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
    inputs = Inputs(write_results(tmp_path, project, bad={("cpu", 16): "out_of_memory"}))
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
    inputs = Inputs(write_results(tmp_path, project))
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
