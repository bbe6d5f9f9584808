"""Folders of a run: nothing stale, nothing half-written."""

import json
import os

import pytest

from feedrate.jobs import outcome
from feedrate.jobs.outcome import (
    FINISHED,
    commit,
    open_attempt,
    publish,
    publish_without_results,
    restore,
)


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
    ".finished.json",
    ".finished.log",
    ".outcome.json.x1y2.part",
    "trainer/checkpoint-3/model.safetensors",
    "trainer/train_results.json",
    "attempt-old/events.jsonl",
]


def test_an_attempt_begins_with_nothing_of_earlier_ones(tmp_path):
    fill(tmp_path, [*OLD, "record.json", "benchmark.tsv", ".claim-1"])
    attempt = open_attempt(tmp_path, "new", {"a": 1}, resume=False)
    expected = [".claim-1", "attempt-new/spec.json", "benchmark.tsv", "record.json"]
    assert names(tmp_path) == expected
    assert json.loads((attempt / "spec.json").read_text()) == {"a": 1}


def test_the_newest_attempts_checkpoints_come_before_older_ones(tmp_path):
    fill(tmp_path, OLD)
    for token, step, age in (("b", 6, 100), ("a", 9, 50)):
        fill(tmp_path, [f"attempt-{token}/trainer/checkpoint-{step}/model.safetensors"])
        os.utime(tmp_path / f"attempt-{token}", (1e9 - age, 1e9 - age))
    os.utime(tmp_path / "attempt-old", (2e9, 2e9))  # the newest, and has none
    open_attempt(tmp_path, "new", {}, resume=True)
    assert names(tmp_path) == [
        "attempt-new/spec.json",
        "attempt-new/trainer/checkpoint-9/model.safetensors",
    ]


def test_the_outcome_is_written_last_after_its_second_name(tmp_path, monkeypatch):
    attempt = open_attempt(tmp_path, "new", {}, resume=False)
    fill(attempt, ["events.jsonl", "train.log", "trainer/train_results.json"])
    seen = []
    monkeypatch.setattr(
        outcome,
        "write_json",
        lambda path, value: seen.append((path.name, value, names(tmp_path))),
    )
    publish(attempt, {"status": "ok"}, "new")
    moved = ["events.jsonl", "spec.json", "train.log", "trainer/train_results.json"]
    finished = {
        "token": "new",
        "files": ["events.jsonl", "spec.json", "train.log", "trainer"],
        "outcome": {"status": "ok"},
    }
    assert seen == [
        (".finished.json", finished, [".finished.log", *moved]),
        ("outcome.json", {"status": "ok"}, [".finished.log", *moved]),
    ]
    assert not attempt.exists()


def test_what_is_given_up_keeps_a_log_and_no_events(tmp_path):
    fill(tmp_path, [*OLD[:-1], "attempt-old/train.log", "attempt-old/events.jsonl"])
    publish_without_results(tmp_path, {"a": 1}, {"status": "failed"}, "new")
    assert (tmp_path / "train.log").read_text() == "attempt-old/train.log"
    assert not [name for name in names(tmp_path) if "events" in name or "attempt" in name]
    assert json.loads((tmp_path / "outcome.json").read_text()) == {"status": "failed"}
    assert json.loads((tmp_path / FINISHED).read_text())["token"] == "new"


def test_of_what_is_given_up_no_weights_stay_but_checkpoints_to_resume_from(tmp_path):
    fill(tmp_path, [*OLD, "trainer/model/model.safetensors", "trainer/model/README.md"])
    publish_without_results(tmp_path, {}, {"status": "failed"}, "new")
    assert names(tmp_path / "trainer") == ["checkpoint-3/model.safetensors"]
    open_attempt(tmp_path, "again", {}, resume=True)
    kept = tmp_path / "attempt-again/trainer/checkpoint-3/model.safetensors"
    assert kept.is_file()


@pytest.mark.parametrize("links", [True, False])
def test_what_snakemake_removes_before_a_duplicate_comes_back(tmp_path, monkeypatch, links):
    def no_links(*_):
        raise OSError("not supported")

    if not links:
        monkeypatch.setattr(outcome.os, "link", no_links)
    fill(tmp_path, ["train.log"])
    commit(tmp_path, {"status": "ok"}, "old", [])
    for name in ("outcome.json", "train.log"):
        (tmp_path / name).unlink()
    restore(tmp_path, {"status": "ok"})
    assert (tmp_path / "train.log").read_text() == "train.log"
    assert json.loads((tmp_path / "outcome.json").read_text()) == {"status": "ok"}
