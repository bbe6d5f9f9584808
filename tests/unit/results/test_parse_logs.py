"""The records of a device's planned runs, and what becomes of runs that cannot be read."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from record_builder import make_plan

from faults import fault
from feedrate.cli.jobs import run as run_job
from feedrate.core.files import digest_file
from feedrate.results.record import read_records
from feedrate.results.study_plan import PlannedRun
from run_folder import make_outcome, make_spec, write_run

RUNS = [f"runs/loading/cpu/workers=1/rep{repeat}-0a1b2c3d" for repeat in (1, 2, 3)]
"""The planned runs; the third has no folder."""


@pytest.fixture
def parse(tmp_path, monkeypatch):
    """Two runs of three, and a function that parses them: the records, and the disturbed runs."""
    monkeypatch.chdir(tmp_path)
    for repeat, run in enumerate(RUNS[:2], start=1):
        write_run(Path(run), spec=make_spec(repeat=repeat), identity="0a1b2c3d")
    planned = [
        PlannedRun(device="cpu", cell="workers=1", levels={"workers": 1}, repeat=k, folder=run)
        for k, run in enumerate(RUNS, start=1)
    ]
    plan = msgspec.structs.replace(make_plan(), runs=planned)
    Path("plan.json").write_bytes(msgspec.json.encode(plan))

    def parse():
        words = ["--plan", "plan.json", "--device", "cpu", "--results", "results"]
        assert run_job("parse_logs", words) == 0
        disturbed = json.loads(Path("results/cpu/disturbed.json").read_text())
        return read_records(Path("results"), "cpu"), disturbed

    return parse


def test_every_planned_run_has_a_record(parse):
    records, disturbed = parse()
    assert [record.folder for record in records] == RUNS
    missing_status = fault("killed supervisor", "local").status
    assert [record.status for record in records] == ["ok", "ok", missing_status]
    assert [record.repeat for record in records] == [1, 2, 3]
    missing = records[2]
    assert (missing.study, missing.device, missing.cell) == ("loading", "cpu", "workers=1")
    assert missing.cause == "No job of this run has ended."
    assert missing.measurement is None
    assert disturbed == []


@pytest.mark.parametrize("name", ["events.jsonl", "events.rank1.jsonl", "train.log", "spec.json"])
def test_logs_that_changed_after_the_run_make_it_invalid(parse, name):
    file = Path(RUNS[0]) / name
    logs = file.read_bytes()
    file.write_bytes(logs.replace(b"0.5", b"0.1") + b"\n")
    (record, other, _), _ = parse()
    assert (record.status, other.status) == ("invalid", "ok")
    assert record.cause.startswith(f"{name} changed after the run")
    assert "logs_unchanged" in [check.name for check in record.checks if not check.passed]
    file.write_bytes(logs)
    assert parse()[0][0].status == "ok"


def test_a_log_that_was_removed_makes_a_run_invalid_and_other_files_do_not(parse):
    folder = Path(RUNS[0])
    (folder / "trace.json.gz").write_bytes(b"x")
    outcome = json.loads((folder / "outcome.json").read_text())
    outcome["files"]["trace.json.gz"] = digest_file(folder / "trace.json.gz")
    (folder / "outcome.json").write_text(json.dumps(outcome))
    (folder / "trace.json.gz").unlink()
    assert parse()[0][0].status == "ok"
    (folder / "train.log").unlink()
    assert parse()[0][0].status == "invalid"


def test_the_folder_of_another_identity_is_invalid(parse):
    write_run(Path(RUNS[0]), identity="ffffffff")
    record = parse()[0][0]
    assert record.status == "invalid"
    assert "identity ffffffff" in record.cause


def test_disturbed_runs_are_to_be_made_again_but_not_for_ever(parse):
    busy = {"machine_before": {"other_training_jobs": 1}}
    for attempt, expected in ((2, [RUNS[0]]), (3, [])):
        write_run(Path(RUNS[0]), outcome=make_outcome(attempt=attempt, **busy))
        records, disturbed = parse()
        assert records[0].status == "invalid"
        assert disturbed == expected


def test_one_bad_run_costs_the_others_nothing(parse):
    (Path(RUNS[0]) / "spec.json").write_text("{")
    records, _ = parse()
    assert [record.status for record in records] == ["failed", "ok", "missing"]
    assert records[0].levels == {"workers": 1}
    assert "spec.json" in records[0].cause


def test_the_copy_of_another_repeat_does_not_count(parse):
    """It would narrow the interval of its cell."""
    shutil.copytree(RUNS[0], RUNS[2])
    records, _ = parse()
    assert (records[2].status, records[2].repeat) == ("failed", 3)


def test_a_state_of_the_machine_that_json_cannot_hold_becomes_null(parse):
    state = {"load_1min": float("nan"), "cpu_mhz": [1.0]}
    write_run(Path(RUNS[0]), outcome=make_outcome(machine_before=state))
    machine = parse()[0][0].provenance.machine_before
    assert machine == {"load_1min": None, "cpu_mhz": [1.0]}


def test_the_same_logs_give_the_same_bytes(parse):
    parse()
    first = Path("results/cpu/records.jsonl").read_bytes()
    parse()
    assert Path("results/cpu/records.jsonl").read_bytes() == first
