"""The worker runs the job of the task; an inference run needs no `trainer` event."""

import importlib
import inspect
from typing import get_args

import pytest
from msgspec.structs import replace
from training_jobs import make_spec, window

from feedrate.config.settings import Task
from feedrate.jobs.events import End, Error, EventLog
from feedrate.jobs.outcome import ProcessExit, classify_exit
from feedrate.jobs.worker import JOBS, SCORING


def test_every_task_has_its_job_and_all_are_called_alike():
    assert set(JOBS) == set(get_args(Task))
    signatures = [
        list(inspect.signature(importlib.import_module(module).run_job).parameters)
        for module in (*JOBS.values(), SCORING)
    ]
    assert signatures[0] == signatures[1] == signatures[2]


@pytest.mark.parametrize(("task", "status"), [("inference", "ok"), ("training", "failed")])
def test_a_window_of_every_rank_is_all_that_comes_of_inference(tmp_path, task, status):
    log = EventLog(tmp_path, 0)
    log.write(window())
    log.write(End(rank=0, ok=True))
    spec = replace(make_spec(), task=task)
    result = classify_exit(spec, tmp_path, ProcessExit(exit_code=0, tail=["bye"]))
    assert result.status == status


def test_out_of_memory_is_out_of_memory_in_inference_too(tmp_path):
    error = Error(rank=0, type="X", message="full", out_of_memory=True)
    EventLog(tmp_path, 0).write(error)
    spec = replace(make_spec(), task="inference")
    result = classify_exit(spec, tmp_path, ProcessExit(exit_code=1))
    assert (result.status, result.cause) == ("out_of_memory", "X: full")
