"""The worker runs what the task says; an inference run needs no Trainer's word."""

import importlib
import inspect
import json
from typing import get_args

import pytest
from msgspec.structs import replace
from training_jobs import make_spec

from feedrate.config.settings import Task
from feedrate.jobs.outcome import Ending, judge
from feedrate.jobs.progress import ProgressLine
from feedrate.jobs.worker import JOBS


def test_every_task_has_its_job_and_all_are_called_alike():
    assert set(JOBS) == set(get_args(Task))
    signatures = [
        list(inspect.signature(importlib.import_module(module).run_job).parameters)
        for module in JOBS.values()
    ]
    assert signatures[0] == signatures[1]


@pytest.mark.parametrize(("task", "status"), [("inference", "ok"), ("training", "failed")])
def test_a_window_of_every_rank_is_all_that_comes_of_inference(tmp_path, task, status):
    events = [{"event": "window", "rank": 0}, {"event": "end", "rank": 0, "ok": True}]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
    spec = replace(make_spec(), task=task)
    verdict = judge(spec, tmp_path, Ending(exit_code=0, tail=["bye"]))
    assert verdict.status == status


def test_out_of_memory_is_out_of_memory_in_inference_too(tmp_path):
    error = {"event": "error", "rank": 0, "type": "X", "message": "full", "out_of_memory": True}
    (tmp_path / "events.jsonl").write_text(json.dumps(error) + "\n")
    verdict = judge(replace(make_spec(), task="inference"), tmp_path, Ending(exit_code=1))
    assert (verdict.status, verdict.cause) == ("out_of_memory", "X: full")


def test_progress_says_nothing_of_ceilings_that_are_not_measured(capsys, monkeypatch):
    for task in ("training", "inference"):
        line = ProgressLine(replace(make_spec(), task=task), quiet=False)
        line._due_s = 0.0
        line.update([{"event": "window"}])
    first, second = capsys.readouterr().err.splitlines()
    assert "alone" in first
    assert "alone" not in second
