"""The limit of memory that a study sets, cells that were not tried, and disturbed cells."""

import pytest
from msgspec.structs import replace
from report_samples import STUDY, study_of, table, with_study, write_results

from feedrate.report import provenance
from feedrate.report.findings import findings
from feedrate.report.limits import noise
from feedrate.report.rows import Results

CAUSE = "Not tried: workers=2 ran out of memory, and this cell needs at least as much."


@pytest.fixture
def full(tmp_path, project, monkeypatch):
    """A project with a ladder whose last cell was not tried, and its results."""
    monkeypatch.chdir(tmp_path)
    project = with_study(project, ladder=["workers"])
    inputs = write_results(tmp_path, project, bad={("cpu", 16): "out_of_memory"}, cause=CAUSE)
    return project, inputs


def limited(project):
    """The project with a limit of memory on the CPU."""
    adapt = {"cpu": {"settings": {"train": {"batch_size": 8, "memory_gib": 1.9}}}}
    return with_study(project, adapt=adapt)


def places(project, inputs):
    """All that tells of memory: facts of the machine, sentences, the table of largest levels."""
    study = study_of(project)
    runs, cells, records = inputs.runs(STUDY), inputs.cells(STUDY), inputs.records(STUDY)
    said = next(
        one.text
        for one in findings(study, Results(cells, runs, records=records))
        if "memory" in one.lead
    )
    (machine,) = provenance.machines(study, runs, records)
    return [" ".join(machine.facts.values()), said, table(project, inputs, "largest")]


def test_a_limit_of_memory_is_said_wherever_memory_ran_out(full):
    project, inputs = full
    assert not any("1.9 GiB" in place for place in places(project, inputs))
    assert all("1.9 GiB" in place for place in places(limited(project), inputs))


def test_a_cell_that_a_smaller_one_decided_is_not_called_out_of_memory(full):
    project, inputs = full
    study, runs = study_of(project), inputs.runs(STUDY)
    page = table(project, inputs, "cells")
    assert "not tried" in page
    assert ">out of memory<" not in page

    def shown(runs):
        lines = provenance.packed_runs(study, runs, {})["runs"]
        return {line.shown for line in lines if not line.valid}

    assert shown(runs) == {"not tried"}
    assert shown([replace(one, cause="It ran out.") for one in runs]) == {"out of memory"}


def test_disturbed_cells_say_by_what(project, inputs):
    said = "Other processes were on the device."
    cells = [
        replace(cell, noisy=True, disturbed=said * (cell.levels["workers"] == 1))
        for cell in inputs.cells(STUDY)
        if cell.status == "ok"
    ]
    words, _ = noise(study_of(project), cells)
    assert f"A run with workers = 1 may have been disturbed. {said}" in words
    wide = words.partition("Two runs of one setting")[2]
    assert "workers = 2" in wide
    assert "workers = 1 (" not in wide
