"""Folders of a run: nothing stale, nothing half-written."""

import json

import pytest

from feedrate.train import workspace
from feedrate.train.workspace import keep_log, open_attempt, publish


def fill(folder, names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def names(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


OLD = [
    "spec.json",
    "events.jsonl",
    "events.rank1.jsonl",
    "train.log",
    "outcome.json",
    "trainer/checkpoint-3/model.safetensors",
    "trainer/train_results.json",
    "attempt/events.jsonl",
]


def test_an_attempt_begins_with_nothing_of_earlier_ones(tmp_path):
    fill(tmp_path, [*OLD, "record.json", "benchmark.tsv"])
    attempt = open_attempt(tmp_path, {"a": 1}, resume=False)
    assert names(tmp_path) == ["attempt/spec.json", "benchmark.tsv", "record.json"]
    assert json.loads((attempt / "spec.json").read_text()) == {"a": 1}


def test_to_resume_the_checkpoints_stay(tmp_path):
    fill(tmp_path, OLD)
    open_attempt(tmp_path, {}, resume=True)
    assert names(tmp_path) == [
        "attempt/spec.json",
        "attempt/trainer/checkpoint-3/model.safetensors",
    ]


def test_a_killed_attempts_checkpoints_come_before_older_ones(tmp_path):
    fill(tmp_path, [*OLD, "attempt/trainer/checkpoint-6/model.safetensors"])
    open_attempt(tmp_path, {}, resume=True)
    assert "attempt/trainer/checkpoint-6/model.safetensors" in names(tmp_path)
    assert "attempt/trainer/checkpoint-3/model.safetensors" not in names(tmp_path)


def test_the_outcome_is_written_last(tmp_path, monkeypatch):
    attempt = open_attempt(tmp_path, {}, resume=False)
    fill(attempt, ["events.jsonl", "train.log", "trainer/train_results.json"])
    seen = []
    monkeypatch.setattr(
        workspace, "write_json", lambda path, _value: seen.append((path.name, names(tmp_path)))
    )
    publish(attempt, {"status": "ok"})
    assert seen == [
        ("outcome.json", ["events.jsonl", "spec.json", "train.log", "trainer/train_results.json"])
    ]
    assert not attempt.exists()


def test_an_attempt_without_outcome_leaves_its_log(tmp_path):
    attempt = open_attempt(tmp_path, {}, resume=False)
    assert keep_log(attempt) == attempt / "train.log"
    fill(attempt, ["train.log"])
    assert keep_log(attempt) == tmp_path / "train.log"
    assert (tmp_path / "train.log").read_text() == "train.log"


@pytest.mark.parametrize("resume", [False, True])
def test_a_fresh_folder_is_fine(tmp_path, resume):
    assert open_attempt(tmp_path, {}, resume=resume).is_dir()
