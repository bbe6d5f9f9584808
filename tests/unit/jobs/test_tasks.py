"""The worker runs the job of the task; an inference run needs no `trainer` event."""

import pytest
from msgspec.structs import replace
from training_jobs import make_spec, window

from feedrate.jobs.events import End, EventLog
from feedrate.jobs.outcome import ProcessExit, classify_exit


@pytest.mark.parametrize(("task", "status"), [("inference", "ok"), ("training", "failed")])
def test_a_window_of_every_rank_is_all_that_comes_of_inference(tmp_path, task, status):
    log = EventLog(tmp_path, 0)
    log.write(window())
    log.write(End(rank=0, ok=True))
    spec = replace(make_spec(), task=task)
    result = classify_exit(spec, tmp_path, ProcessExit(exit_code=0, tail=["bye"]))
    assert result.status == status
