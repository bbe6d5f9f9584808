"""Tables of what limits a cell: ceilings, stages, and the windows that its rate depends on."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from report_samples import STUDY, TIMES, table

from feedrate.config.study import SourceProtocol
from feedrate.jobs.events import Step
from feedrate.report.rows import Inputs, RunRow, Trace
from feedrate.report.tables.window import source_window
from feedrate.report.text import STATUS_WORDS


def test_ceilings_have_their_intervals(project, inputs):
    page = table(project, inputs, "ceilings")
    row = page.split(">1, host<")[1].split("</tr>")[0]
    assert f"{TIMES}1.05<small>1.04 to 1.06</small>" in row
    assert "compute-bound" in row
    assert "All-reduce" not in page


def test_a_rate_alone_is_the_records_whatever_its_ratio_to_training(project, inputs, monkeypatch):
    """The ratio is to blocks of the same rounds, the throughput is the window's."""
    ratio = {"model_ratio": 0.91, "model_ratio_low": 0.8, "model_ratio_high": 1.04}
    cells = [replace(cell, **ratio, model_samples_per_s=37.13) for cell in inputs.cells(STUDY)]
    monkeypatch.setattr(Inputs, "cells", lambda *_: cells)
    row = table(project, inputs, "ceilings").split(">1, host<")[1].split("</tr>")[0]
    assert "<small>37.13 samples/s</small>" in row


def test_a_ceiling_below_training_is_marked_and_bounds_nothing(project, inputs, monkeypatch):
    """A default run said "training over the lower ceiling: 108%"."""
    below = {"model_ratio": 0.93, "model_ratio_low": 0.91, "model_ratio_high": 0.95}
    cells = [replace(cell, **below, below_rate="model") for cell in inputs.cells(STUDY)]
    monkeypatch.setattr(Inputs, "cells", lambda *_: cells)
    row = table(project, inputs, "ceilings").split(">1, host<")[1].split("</tr>")[0]
    assert "not a ceiling: slower than training" in row
    assert "108%" not in row
    caption = Path(__file__).parents[3] / "report/captions/table_ceilings.rst"
    assert "between" not in caption.read_text()


def test_stages_have_columns_where_they_are_known(project, inputs, monkeypatch):
    assert "Decode" not in table(project, inputs, "stages")
    cells = [replace(cell, stage_decode_s=0.0125) for cell in inputs.cells(STUDY)]
    monkeypatch.setattr(Inputs, "cells", lambda *_: cells)
    page = table(project, inputs, "stages")
    assert "<td>12.5 ms</td>" in page
    assert "Hand over" not in page


def test_a_stage_that_is_not_split_is_no_dash(project, inputs, monkeypatch):
    known = {"stage_read_s": 0.02, "stage_read_p95_s": 0.003, "stage_read_cpu_s": 0.01}
    cells = [replace(cell, **known, stage_not_split="resize") for cell in inputs.cells(STUDY)]
    monkeypatch.setattr(Inputs, "cells", lambda *_: cells)
    page = table(project, inputs, "stages")
    assert "<td>20.0 ms<small>p95 3.00 ms, CPU 10.0 ms</small></td>" in page
    assert "not split" in page
    assert ">Resize<" in page
    assert ">Decode<" not in page


def trace(steps, per_epoch):
    """A run of two ranks whose second and sixth step are slow: 8 samples a step and rank."""
    steps = [
        Step(rank=0, step=n, step_s=4.0 if n in (2, 6) else 1.0, samples=8)
        for n in range(1, steps + 1)
    ]
    run = RunRow(**dict.fromkeys(("study", "device", "cell"), "x"), status="ok")
    return Trace(replace(run, steps_per_epoch=per_epoch, world_size=2), steps)


@pytest.mark.parametrize(
    ("protocol", "per_epoch", "expected"),
    [
        ({}, 4, (160 / 16, 2.5)),
        ({"warmup_steps": 2}, 4, (128 / 11, 2.5)),
        # The end of an epoch is inside, what follows the last epoch is not.
        ({"warmup_steps": 2, "epochs": 2}, 4, (96 / 9, 2.0)),
        ({"warmup_steps": 2, "epochs": 5}, 20, (128 / 11, 0.5)),
        ({"warmup_steps": 10}, 4, None),
        ({}, None, None),
    ],
)
def test_the_sources_window_has_its_warm_up_and_its_epochs(protocol, per_epoch, expected):
    found = source_window(trace(10, per_epoch), SourceProtocol(**protocol))
    assert found == (pytest.approx(expected) if expected else None)


def test_three_windows_stand_side_by_side(project, inputs, monkeypatch):
    study = project.studies[STUDY]
    source = replace(study.source, protocol=SourceProtocol(warmup_steps=3, epochs=5))
    project = replace(project, studies={STUDY: replace(study, source=source)})
    run = next(run for run in inputs.runs(STUDY) if run.levels["workers"] == 1)
    own = trace(10, 8)._replace(run=replace(run, steps_per_epoch=8, world_size=1))
    monkeypatch.setattr("feedrate.report.tables.window.traces", lambda *_: [own])
    cells = inputs.cells(STUDY)
    unsupported = replace(cells[0], status="unsupported", cause="it lacks fp8", samples_per_s=None)
    monkeypatch.setattr(inputs, "cells", lambda _: [*cells, unsupported])
    page = table(project, inputs, "window")
    assert "it lacks fp8" not in page, "the tables of all cells give the reason once"
    row = page.split(">1, host<")[1].split("</tr>")[0]
    assert f"<small>{TIMES}0.97</small>" in row
    assert "1.2 of 5 epochs" in row
    assert "3 steps left out" in page


@pytest.mark.parametrize("kind", ["window", "stages", "equal"])
def test_a_device_that_supports_no_cell_says_why(project, inputs, monkeypatch, kind):
    lacking = {"status": "unsupported", "cause": "it lacks fp8", "samples_per_s": None}
    none = [replace(cell, **lacking) for cell in inputs.cells(STUDY)]
    monkeypatch.setattr(inputs, "cells", lambda _: none)
    page = table(project, inputs, kind)
    assert "it lacks fp8" in page
    assert STATUS_WORDS["absent"] not in page
