"""What each kind of study says in one minute: a result and what to do, both by its data."""

import re

import pytest
from msgspec.structs import replace
from report_samples import STUDY, make_project, study_of, with_study, write_results

from feedrate.config.study import Table
from feedrate.report.minute import minute


def lines(study, inputs):
    return list(minute(study, inputs.results(STUDY)))


def said(study, inputs):
    """The words of all lines."""
    return "\n".join(f"{one.about}: {one.value}{one.rest}" for one in lines(study, inputs))


def bad(status, *workers):
    return {("cpu", one): status for one in workers}


@pytest.fixture
def study(project):
    """The study without the tables and figures that make it one of a special kind."""
    return replace(study_of(project), tables=[], figures=[])


@pytest.fixture
def ladder(study):
    largest = Table(name="l", kind="largest", title="L", caption="c", factor="workers")
    return replace(study, ladder=["workers"], tables=[largest])


def test_a_setting_to_use_and_what_to_do_next(study, inputs):
    assert (
        "CPU: 14.10 samples/s (13.96 to 14.24) with workers = 1, compute-bound: use it, and keep "
        "the loader: the device hardly waits for it." in said(study, inputs)
    )


def test_the_range_of_what_is_undecided_is_of_those_settings_only(study, inputs):
    cells = [
        replace(one, recommended=False, open="Undecided." * (one.levels["workers"] in (1, 2)))
        for one in inputs.cells(STUDY)
    ]
    inputs.cells = lambda _: cells
    (line,) = lines(study, inputs)
    assert line.value == "14.10 to 14.30 samples/s"
    assert [cell.levels["workers"] for cell in line.cells] == [1, 2]


def test_a_study_of_inference_says_which_setting_is_for_what(study, inputs):
    words = said(replace(study, task="inference"), inputs)
    assert "the lowest latency measured is 722 ms and the highest throughput 11.20" in words
    only = "Nothing to choose: only one setting with workers = 0 has a valid result."
    assert only in words, "other workers have results, and other settings may have failed"


def set_apart(inputs, **changes):
    """Give each rate an interval of 0.1%, or other `changes`."""
    cells = [
        replace(c, ci_low=0.999 * c.samples_per_s, ci_high=1.001 * c.samples_per_s)
        if c.status == "ok"
        else c
        for c in inputs.cells(STUDY)
    ]
    inputs.cells = lambda _: [replace(c, **changes) for c in cells]
    return inputs


def test_a_ladder_says_whether_the_largest_is_the_fastest(ladder, tmp_path, project):
    inputs = write_results(tmp_path, project, bad=bad("out_of_memory", 16))
    fastest = "the fastest with decode = host (14.30 samples/s)"
    told = f"Use 2, {fastest}; it is not measurably faster than 1."
    assert told in said(ladder, inputs)
    assert f"Use 2, which is also {fastest}." in said(ladder, set_apart(inputs))


def test_a_ladder_that_never_ran_out_of_memory_has_no_known_end(ladder, inputs):
    words = said(ladder, inputs)
    assert "it is not measurably faster than 1. No level ran out of memory with" in words
    words = said(ladder, set_apart(inputs))
    fastest = "the fastest with decode = host (14.30 samples/s)"
    assert f"Use 2, {fastest}: larger ones fit, but are slower." in words


def test_where_nothing_fits_less_memory_is_needed(ladder, tmp_path, project):
    inputs = write_results(tmp_path, project, bad=bad("out_of_memory", 0, 1, 2, 16))
    assert "Free memory, or choose a smaller model." in said(ladder, inputs)


def test_quality_that_rose_is_a_reason_to_use_the_weights(project, inputs):
    figures = [one for one in project.studies[STUDY].figures if one.kind == "gain"]
    quality = replace(study_of(with_study(project, figures=figures)), tables=[])
    words = said(quality, inputs)
    assert "from random weights on drawn pictures" in words
    assert "Use the trained weights." in words
    rows = inputs.scores(STUDY)

    def told(low, high):
        scores = [replace(row.score, gain_low=low, gain_high=high) for row in rows]
        changed = [replace(row, score=one) for row, one in zip(rows, scores, strict=True)]
        inputs.scores = lambda _: changed
        return said(quality, inputs)

    assert "Do not use the trained weights" in told(-0.4, -0.1)
    assert "Undecided: train longer, or evaluate on more examples." in told(-0.1, 0.1)
    assert "it is unknown whether training" in told(None, None)


def test_failed_cells_are_to_be_run_again(study, tmp_path, project):
    inputs = write_results(tmp_path, project, bad=bad("failed", 0, 1, 2, 16))
    words = said(study, inputs)
    assert "no answer yet. None of 4 cells has a valid result" in words
    assert "Remove the cause and run the study again." in words


@pytest.fixture
def scaled(tmp_path):
    """A study on one and on eight devices of a family, with its results."""
    project = make_project(("cpu", "gaudi2"))
    study = study_of(project)
    devices = study.devices | {"gaudi2": replace(study.devices["gaudi2"], variant_of="cpu")}
    study = replace(study, devices=devices, figures=[])
    return study, write_results(tmp_path, project)


def test_scaling_gives_the_share_of_linear(scaled):
    words = said(*scaled)
    assert "from 1 to 8 devices with workers = 0, 12% of linear." in words
    assert "Look for what limits 8 devices in the table of scaling." in words


def test_a_gain_has_its_interval_or_says_why_not(scaled):
    study, inputs = scaled
    runs, gain = inputs.runs(STUDY), "Scaling: \N{MULTIPLICATION SIGN}1.00"
    low, high = map(float, re.search(rf"{gain} \((\S+) to (\S+)\) from", said(*scaled)).groups())
    assert low < 1 < high
    inputs.runs = lambda _: [run for run in runs if run.repeat == 2]
    assert f"{gain} (no interval: single runs) from 1 to 8 devices" in said(study, inputs)
    inputs.runs = lambda _: [run for run in runs if run.repeat == 2 or run.device == "cpu"]
    assert f"{gain} (no interval: single runs)" in said(study, inputs), "single on the other device"
