"""Which runs are parsed again, and what becomes of those that cannot be."""

import json
import shutil

import msgspec
import pytest

from feedrate.cli.jobs import run as run_job
from feedrate.core.files import digest_file
from feedrate.results.assemble import UNCHANGED, current_record, update_records
from feedrate.results.params import DeviceFacts
from feedrate.results.record import read_record
from run_folder import make_outcome, make_spec, write_run

DEVICE = DeviceFacts(power_w=700.0)


def make_run(root, repeat=1):
    return write_run(root / f"loading/gpu/workers=1/rep{repeat}", spec=make_spec(repeat=repeat))


@pytest.fixture
def runs(tmp_path):
    made = [make_run(tmp_path, repeat) for repeat in (1, 2)]
    assert update_records(made, DEVICE, "reader 1") == made
    return made


def test_nothing_is_parsed_twice(runs):
    before = [(run / "record.json").stat().st_mtime_ns for run in runs]
    assert update_records(runs, DEVICE, "reader 1") == []
    assert [(run / "record.json").stat().st_mtime_ns for run in runs] == before


def test_another_parser_or_another_device_parses_all(runs):
    assert update_records(runs, DEVICE, "reader 2") == runs
    assert update_records(runs, DeviceFacts(power_w=600), "reader 2") == runs


def test_a_new_run_is_parsed_alone(runs, tmp_path):
    third = make_run(tmp_path, 3)
    assert update_records([*runs, third], DEVICE, "reader 1") == [third]


def test_a_run_that_was_made_again_is_parsed_alone(runs):
    write_run(runs[1], spec=make_spec(repeat=2), outcome=make_outcome(attempt=3))
    assert update_records(runs, DEVICE, "reader 1") == [runs[1]]
    assert read_record(runs[1] / "record.json").provenance.attempt == 3


@pytest.mark.parametrize("damage", [b"", b'{"study": "load', b"\xff\xfe", b'{"study": 1}', None])
def test_a_damaged_record_is_made_again(runs, damage):
    record = runs[0] / "record.json"
    whole = record.read_bytes()
    record.unlink() if damage is None else record.write_bytes(damage)
    assert update_records(runs, DEVICE, "reader 1") == [runs[0]]
    assert record.read_bytes() == whole


@pytest.mark.parametrize("name", ["events.jsonl", "events.rank1.jsonl", "train.log", "spec.json"])
def test_logs_that_changed_after_their_record_are_reported(runs, name):
    file, record = runs[0] / name, runs[0] / "record.json"
    logs, first = file.read_bytes(), read_record(record)
    file.write_bytes(logs.replace(b"0.5", b"0.1") + b"\n")
    assert update_records(runs, DEVICE, "reader 1") == [runs[0]]
    found = read_record(record)
    assert found.status == "invalid"
    assert found.cause.startswith(f"{name} changed after the record was made")
    assert [c.name for c in found.checks if not c.passed] == [UNCHANGED]
    assert found.measurement == first.measurement
    assert update_records(runs, DEVICE, "reader 2") == [runs[1]], "changed logs are no evidence"
    file.write_bytes(logs)
    assert update_records([runs[0]], DEVICE, "reader 1") == [runs[0]]
    assert read_record(record) == first


def test_collecting_takes_a_record_of_any_parser(runs):
    record = read_record(runs[0] / "record.json")
    assert current_record(runs[0], DeviceFacts()) == (record, False)


def test_one_bad_run_costs_the_others_nothing(runs, tmp_path, capsys):
    bad = make_run(tmp_path, 3)
    (bad / "spec.json").write_text("{")
    listed, marker = tmp_path / "runs.txt", tmp_path / "parsed.json"
    listed.write_text("".join(f"{run}\n" for run in [bad, *runs]))
    device = repr(msgspec.to_builtins(DEVICE))
    arguments = ["--runs-list", str(listed), "--device", device, "--parser", "reader 1"]
    assert run_job("parse-logs", [*arguments, "--out", str(marker)]) == 0
    assert "parsed 1 of 3 runs" in capsys.readouterr().out
    found = read_record(bad / "record.json")
    assert (found.study, found.device, found.repeat) == ("loading", "gpu", 3)
    assert (found.cell, found.levels) == ("workers=1", {"workers": 1})
    assert found.status == "failed"
    assert "spec.json" in found.cause
    digests = {str(run): digest_file(run / "record.json") for run in [bad, *runs]}
    assert json.loads(marker.read_text()) == {"digests": digests, "disturbed": {}}
    assert run_job("parse-logs", [*arguments, "--out", str(marker)]) == 0
    assert "parsed 0 of 3 runs" in capsys.readouterr().out


def test_the_copy_of_another_repeat_does_not_count(runs):
    """It would narrow the interval of its cell."""
    shutil.copytree(runs[0], runs[0].with_name("rep9"))
    update_records([runs[0].with_name("rep9")], DEVICE, "parser")
    record = read_record(runs[0].with_name("rep9") / "record.json")
    assert (record.status, record.repeat) == ("failed", 9)
