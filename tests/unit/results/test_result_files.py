"""The files of results: written together, and read back."""

import csv

import msgspec
import pyarrow.parquet as pq
import pytest
from collected_rows import cells_from, rows_of
from record_builder import make_plan, make_record, make_spec, make_study, runs_of

from faults import fault
from feedrate.cli.jobs import run as run_job
from feedrate.config.study import Factor
from feedrate.results.files import CELLS, RUNS, for_studies, read_csv, write_csv
from feedrate.results.record import read_records, write_records
from run_folder import write_run


def collect(tmp_path, records, plan):
    """Collect the records by the job; the folder of the results."""
    write_records(tmp_path, "cpu", records)
    file = tmp_path / "plan.json"
    file.write_bytes(msgspec.json.encode(plan))
    assert run_job("collect_results", ["--plan", str(file), "--results", str(tmp_path)]) == 0
    return tmp_path


def test_the_job_writes_three_files_that_agree(tmp_path):
    records = [*runs_of(0, [10.0, 10.5]), *runs_of(2, [20.0])]
    plan = make_plan(records=records)
    results = collect(tmp_path, records, plan)
    rows = read_csv(results / "results.csv", RUNS)
    table = pq.read_table(results / "results.parquet")
    assert table.column_names == [c.name for c in for_studies(RUNS, plan.project.studies)]
    assert table.column_names == list(rows[0])
    for row, other in zip(rows, table.to_pylist(), strict=True):
        assert row == {k: ("" if v is None and row[k] == "" else v) for k, v in other.items()}
    field = table.schema.field("samples_per_s")
    assert field.metadata[b"unit"] == b"samples/s"
    cells = read_csv(results / "cells.csv", CELLS)
    assert [c["samples_per_s"] for c in cells] == [10.25, None, 20.0]


@pytest.mark.parametrize("content", ["{}\n", "nonsense", None])
def test_damaged_or_missing_records_are_made_again(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    planned = runs_of(0, [10.0])
    write_run(tmp_path / planned[0].folder, spec=make_spec(0))
    plan = make_plan(records=planned)
    file = tmp_path / "cpu/records.jsonl"
    file.parent.mkdir()
    if content:
        file.write_text(content)
    (tmp_path / "plan.json").write_bytes(msgspec.json.encode(plan))
    ended = run_job("collect_results", ["--plan", "plan.json", "--results", "."])
    assert ended == fault("damaged record", "local").exit_code
    row = read_csv(tmp_path / "results.csv", RUNS)[0]
    assert (row["folder"], row["cell"]) == (planned[0].folder, planned[0].cell)
    assert read_records(tmp_path, "cpu")[0].status == row["status"] == "invalid"


def test_levels_of_several_kinds_become_text(tmp_path):
    study = make_study(
        factors={
            "workers": Factor(sets="loader.workers", levels=[0, "many"]),
            "decode": Factor(sets="loader.decode", levels=["host"]),
        }
    )
    records = runs_of(0, [10.0])
    plan = make_plan(study, records=records, unsupported=[])
    row = pq.read_table(collect(tmp_path, records, plan) / "results.parquet").to_pylist()[0]
    assert row["workers"] == "0"


def test_rows_survive_the_round_trip(tmp_path):
    rows, settings = rows_of(
        [make_record(1 / 3, status="invalid", cause='A "cause", with\ta tab and é')]
    )
    columns = for_studies(CELLS, settings.project.studies)
    cells = cells_from(rows, settings)
    write_csv(tmp_path / "cells.csv", columns, cells)
    back = read_csv(tmp_path / "cells.csv", columns)
    assert back == [
        {
            c.name: "" if c.kind == "text" and row.get(c.name) is None else row.get(c.name)
            for c in columns
        }
        for row in cells
    ]
    with (tmp_path / "cells.csv").open() as stream:
        assert next(csv.reader(stream))[:3] == ["study", "device", "cell"]


def test_a_table_with_a_wrong_field_names_file_and_line(tmp_path):
    (tmp_path / "x.csv").write_text("study,repeat\na,one\n")
    with pytest.raises(ValueError, match=r"x.csv, line 2"):
        read_csv(tmp_path / "x.csv", RUNS)
