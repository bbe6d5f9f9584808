"""The small study from nothing to report, and what its outputs hold."""

import csv
import json
import os
import re

import pyarrow.parquet as pq

RUN_FILES = {"spec.json", "events.jsonl", "train.log", "trainer", "outcome.json"}


def read(path):
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_every_run_leaves_its_files(finished):
    runs = sorted((finished.root / "runs/mini/cpu").glob("*/rep*/"))
    assert [r.parent.name for r in runs] == ["workers=0~decode=host", "workers=1~decode=host"]
    for run in runs:
        assert {file.name for file in run.iterdir()} == RUN_FILES
        assert re.fullmatch(r"rep1-[0-9a-f]{8}", run.name)
        beside = {path.name for path in run.parent.iterdir()}
        assert beside == {run.name, f"{run.name}.log"}, "no workplace is left"


def test_results_have_a_row_for_every_requested_cell(finished):
    rows = read(finished.root / "results/results.csv")
    by_cell = {row["cell"]: row for row in rows}
    decodes = ("host", "device")
    assert set(by_cell) == {f"workers={n}~decode={decode}" for n in (0, 1) for decode in decodes}
    for cell, row in by_cell.items():
        expected = "unsupported" if "device" in cell else "ok"
        assert row["status"] == expected, row["cause"]
        assert row["study"] == "mini"
        assert row["device"] == "cpu"
    measured = by_cell["workers=1~decode=host"]
    assert float(measured["samples_per_s"]) > 0
    assert float(measured["step_time_median_s"]) > 0
    assert 0 <= float(measured["data_wait_share"]) <= 1
    assert float(measured["peak_memory_gib"]) > 0
    assert float(measured["trainer_samples_per_s"]) > 0
    assert measured["mfu"] == ""  # no peak is known for a CPU
    table = pq.read_table(finished.root / "results/results.parquet")
    assert table.column_names == list(rows[0])
    assert table.num_rows == len(rows)


def test_record_agrees_with_its_events(finished):
    record = finished.record("workers=0~decode=host")
    (run,) = (finished.root / "runs/mini/cpu/workers=0~decode=host").glob("rep1-*/")
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    steps = [e for e in events if e["event"] == "step"]
    assert [e["step"] for e in steps] == [1, 2, 3, 4]
    counted = sum(e["samples"] for e in steps if not e["warmup"])
    measured = record["measurement"]
    assert measured["samples"] == counted == 2 * 2
    assert measured["samples_per_s"] == measured["samples"] / measured["wall_s"]
    assert all(check["passed"] for check in record["checks"])
    assert record["provenance"]["cores_granted"] >= 1


def test_report_opens_with_the_answer_and_needs_no_network(finished):
    report = (finished.root / "report.html").read_text()
    assert "A small study" in report
    for marker in ('src="http', "src='http", 'rel="stylesheet" href="http', "@import url(http"):
        assert marker not in report
    assert "samples/s" in report
    assert "data:image/svg+xml" in report


def test_again_there_is_nothing_to_do_and_the_report_is_named(finished):
    assert finished.planned() == {}
    again = finished.run()
    assert again.returncode == 0
    assert "report.html" in again.stdout
    assert "samples/s" in again.stdout


def test_a_study_is_a_target(finished):
    done = finished.call(
        "snakemake", "--profile", "local", "-n", "--forcerun", "plot_figures", "--", "mini"
    )
    assert done.returncode == 0, done.stdout
    assert "plot_figures" in done.stdout
    assert "write_report" not in done.stdout


def test_results_of_another_configuration_are_made_again(edited):
    """`report` and first-hour write results without Snakemake, which knows only its own."""
    table = edited.root / "results/mini/results.csv"
    rows = table.read_text()
    assert edited.call("feedrate", "report", "--config", "repeats=2").returncode == 1, (
        "rep 2 is missing"
    )
    assert table.read_text() != rows
    edited.run()
    assert table.read_text() == rows
    assert edited.planned() == {}


def test_out_of_memory_is_tried_again_only_when_asked_for(edited):
    """As its cause tells where it was the host's, and docs/clusters.md."""
    (outcome,) = (edited.root / "runs/mini/cpu/workers=1~decode=host").glob("rep1-*/outcome.json")
    text, stat = outcome.read_text(), outcome.stat()
    assert '"status": "ok"' in text
    outcome.write_text(text.replace('"status": "ok"', '"status": "out_of_memory"'))
    os.utime(outcome, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert edited.planned() == {}
    asked = ("--forcerun", str(outcome.relative_to(edited.root)))
    assert edited.planned(*asked)["train_cpu"] == 1
