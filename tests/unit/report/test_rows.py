import msgspec
import pytest
from report_samples import STUDY

from feedrate.config.errors import ConfigError
from feedrate.report.rows import CellRow, ClaimRow, Inputs, RunRow
from feedrate.results import files


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        (CellRow, files.CELLS),
        (RunRow, files.RUNS),
        (ClaimRow, files.CLAIMS),
    ],
)
def test_every_field_is_a_column_of_its_file(kind, known):
    assert {field.name for field in msgspec.structs.fields(kind)} <= {c.name for c in known}


def test_rows_are_typed_and_know_their_levels(inputs):
    cell = inputs.cells(STUDY)[1]
    assert cell.levels == {"workers": 1, "decode": "host"}
    assert cell.recommended is True
    assert cell.samples_per_s == pytest.approx(14.1)
    assert cell.mfu is None


def test_single_runs_have_rivals_within_what_they_are_taken_to_differ_by():
    def cell(rate, **columns):
        return CellRow(study="s", device="d", cell="c", status="ok", samples_per_s=rate, **columns)

    fast, near, slow = cell(58.66), cell(54.6), cell(24.11)
    assert fast.rivals([fast, near, slow], 0.1) == [near]
    assert fast.rivals([fast, near, slow], 0.01) == []
    assert fast.rivals([cell(24.11, block_noise=0.4)], 0.1) == [cell(24.11, block_noise=0.4)]
    assert fast.basis
    sure = [cell(rate, ci_low=rate - 1, ci_high=rate + 1) for rate in (58.0, 56.5, 55.5)]
    assert sure[0].rivals(sure, 0.1) == [sure[1]]
    assert not sure[0].basis


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=rf"{STUDY}/cells\.csv"):
        Inputs(tmp_path).cells(STUDY)


def test_a_wrong_field_is_named(tmp_path):
    path = tmp_path / STUDY / "cells.csv"
    path.parent.mkdir()
    path.write_text(f"study,device,cell,status,runs\n{STUDY},cpu,workers=0,ok,many\n")
    with pytest.raises(ConfigError, match=r"cells\.csv.*many"):
        Inputs(tmp_path).cells(STUDY)
