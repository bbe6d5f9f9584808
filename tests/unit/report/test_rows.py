import msgspec
import pytest
from report_samples import STUDY

from feedrate.config.errors import ConfigError
from feedrate.report.rows import CellRow, ClaimRow, FitRow, Inputs, RunRow
from feedrate.results import columns


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        (CellRow, columns.CELLS),
        (RunRow, columns.RUNS),
        (ClaimRow, columns.CLAIMS),
        (FitRow, columns.FIT),
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


def test_only_the_rows_of_the_study(inputs):
    assert inputs.cells("another") == []


def test_a_missing_input_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cells\.csv is needed.*\(fit\.csv\)"):
        Inputs([tmp_path / "fit.csv"]).cells(STUDY)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cells\.csv: .*No such file"):
        Inputs([tmp_path / "cells.csv"]).cells(STUDY)


def test_a_wrong_field_is_named(tmp_path):
    path = tmp_path / "cells.csv"
    path.write_text(f"study,device,cell,status,runs\n{STUDY},cpu,workers=0,ok,many\n")
    with pytest.raises(ConfigError, match=r"cells\.csv.*many"):
        Inputs([path]).cells(STUDY)


def test_pages_are_found_by_the_end_of_their_path(tmp_path):
    one, other = tmp_path / "results/a/tables/t.html", tmp_path / "results/b/tables/t.html"
    inputs = Inputs([one, other, tmp_path / "c.rst"])
    assert inputs.path("results/a/tables/t.html") == one
    assert inputs.path("results/b/tables/t.html") == other
    assert inputs.with_suffix(".rst") == [tmp_path / "c.rst"]
    with pytest.raises(ConfigError, match=r"results/c/tables/t\.html is needed"):
        inputs.path("results/c/tables/t.html")
