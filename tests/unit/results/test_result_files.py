"""The files of results: written together, read back, and removed if they changed."""

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from collected_rows import cells_from, rows_of
from record_builder import (
    as_literal,
    collect_settings,
    collect_study,
    make_record,
    make_spec,
    runs_of,
    write_records,
)

from faults import fault
from feedrate.cli.jobs import run as run_job
from feedrate.config.study import Factor
from feedrate.core import paths
from feedrate.results.assemble import current_record, parse_logs
from feedrate.results.collect import collect_results
from feedrate.results.columns import CELLS, RUNS, for_studies
from feedrate.results.files import read_csv, remove_damaged, write_csv
from feedrate.results.params import DeviceFacts
from feedrate.results.record import read_record
from run_folder import write_run


def command(tmp_path, records, settings=None):
    (tmp_path / "list.txt").write_text("\n".join(records) + "\n")
    return [
        "--records-list", str(tmp_path / "list.txt"),
        "--settings", as_literal(settings or collect_settings()),
        "--out-csv", str(tmp_path / "out/results.csv"),
        "--out-parquet", str(tmp_path / "out/results.parquet"),
        "--cells", str(tmp_path / "out/cells.csv"),
    ]  # fmt: skip


def test_the_command_writes_three_files_that_agree(tmp_path):
    records = write_records(tmp_path, [*runs_of(0, [10.0, 10.5]), *runs_of(2, [20.0])])
    assert run_job("collect-results", command(tmp_path, records)) == 0
    settings = collect_settings()
    rows = read_csv(tmp_path / "out/results.csv", RUNS)
    table = pq.read_table(tmp_path / "out/results.parquet")
    assert table.column_names == [c.name for c in for_studies(RUNS, settings.studies)]
    assert table.column_names == list(rows[0])
    for row, other in zip(rows, table.to_pylist(), strict=True):
        assert row == {k: ("" if v is None and row[k] == "" else v) for k, v in other.items()}
    field = table.schema.field("samples_per_s")
    assert field.metadata[b"unit"] == b"samples/s"
    cells = read_csv(tmp_path / "out/cells.csv", CELLS)
    assert [c["samples_per_s"] for c in cells] == [10.25, None, 20.0]


@pytest.mark.parametrize("content", ["{}", "nonsense", json.dumps({"schema_version": 99}), None])
def test_a_record_that_is_damaged_or_missing_is_made_again_from_its_logs(tmp_path, content):
    spec = make_spec()
    run = write_run(tmp_path / paths.run_dir(spec.study, spec.device, spec.cell, 1), spec=spec)
    device = DeviceFacts()
    record, _ = current_record(run, device)
    (run / "record.json").write_text(content) if content else (run / "record.json").unlink()
    ended = run_job("collect-results", command(tmp_path, [str(run / "record.json")]))
    assert ended == fault("damaged record", "local").exit_code
    assert read_record(run / "record.json") == record
    row = read_csv(tmp_path / "out/results.csv", RUNS)[0]
    assert row["status"] == record.status
    assert row["cause"] == record.cause


def test_a_run_without_logs_costs_the_others_nothing(tmp_path):
    records = write_records(tmp_path, runs_of(0, [10.0]))
    records.append(str(tmp_path / "loading/cpu/workers=1~decode=host/rep2/record.json"))
    assert run_job("collect-results", command(tmp_path, records)) == 0
    rows = read_csv(tmp_path / "out/results.csv", RUNS)
    assert [(row["status"], row["repeat"]) for row in rows[:2]] == [("ok", 1), ("failed", 2)]
    assert "spec.json: no such file" in rows[1]["cause"]


@pytest.fixture
def collected(tmp_path, monkeypatch):
    """Two runs of a study, parsed and collected, with a page; the folder of the study."""
    monkeypatch.chdir(tmp_path)
    study = Path("results/loading")
    runs = [study / f"cpu/workers=0~decode=host/rep{k}" for k in (1, 2)]
    for repeat, run in enumerate(runs, start=1):
        write_run(run, spec=make_spec(repeat=repeat))
    Path("runs").write_text("\n".join(map(str, runs)))
    parse_logs(Path("runs"), DeviceFacts(), "x", study / "cpu/records.json")
    Path("list").write_text("\n".join(f"{run}/record.json" for run in runs))
    tables = (study / name for name in ("results.csv", "results.parquet", "cells.csv"))
    collect_results(Path("list"), collect_settings(), *tables)
    (study / "tables").mkdir()
    for page in (study / "tables/cells.html", Path("results/overview.html")):
        page.write_text("<p>A page.</p>")
    assert remove_damaged(Path("results")) == []
    return study


def test_a_result_file_that_changed_is_removed_with_all_that_follows(collected, capsys):
    file = collected / "results.csv"
    file.write_text(file.read_text()[:-20])
    assert remove_damaged(Path("results")) == [file]
    assert "results.csv changed after it was written" in capsys.readouterr().err
    left = {path.name for path in Path("results").rglob("*") if path.is_file()}
    assert left.isdisjoint({"results.csv", "cells.csv", "cells.html", "overview.html"})
    assert left >= {"records.json", "record.json", "events.jsonl", "outcome.json"}


def test_a_record_that_changed_is_removed_and_parsed_again(collected):
    record = collected / "cpu/workers=0~decode=host/rep2/record.json"
    whole = record.read_text()
    record.write_text(whole.replace('"invalid"', '"ok"'))
    assert remove_damaged(Path("results")) == [record]
    assert not (collected / "cpu/records.json").exists()
    assert not (collected / "cells.csv").exists()
    assert (collected / "cpu/workers=0~decode=host/rep1/record.json").exists()
    parse_logs(Path("runs"), DeviceFacts(), "x", collected / "cpu/records.json")
    assert record.read_text() == whole


def test_levels_of_several_kinds_become_text(tmp_path):
    study = collect_study(
        factors={
            "workers": Factor(sets="loader.workers", levels=[0, "many"]),
            "decode": Factor(sets="loader.decode", levels=["host"]),
        }
    )
    settings = collect_settings(studies={"loading": study}, unsupported=[])
    records = write_records(tmp_path, runs_of(0, [10.0]))
    assert run_job("collect-results", command(tmp_path, records, settings)) == 0
    row = pq.read_table(tmp_path / "out/results.parquet").to_pylist()[0]
    assert row["workers"] == "0"


def test_rows_survive_the_round_trip(tmp_path):
    rows, settings = rows_of(
        tmp_path, [make_record(1 / 3, status="invalid", cause='A "cause", with\ta tab and é')]
    )
    columns = for_studies(CELLS, settings.studies)
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
