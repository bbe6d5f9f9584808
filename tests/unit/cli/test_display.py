"""What the terminal shows of a run, as bars and as lines."""

import io

import pytest
from rich.console import Console

from feedrate.cli.display import SHOWN, Display, Progress
from feedrate.jobs.events import EventLog, Step


@pytest.fixture
def progress():
    return Progress()


@pytest.fixture
def start(progress, tmp_path):
    """Starts a job; it has made `step` steps."""

    def start(number, rule, step=0, **wildcards):
        run = tmp_path / str(number)
        if step:
            attempt = run / "attempt-x"
            attempt.mkdir(parents=True)
            EventLog(attempt, 0).write(Step(rank=0, step=step, samples=8, step_s=0.5))
        told = {"jobid": number, "rule_name": rule, "wildcards": wildcards}
        progress.update("job_info", told | {"output": [str(run / "outcome.json")]})

    return start


def picture(progress):
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(Display(progress, enabled=True)._render())
    return console.export_text().splitlines()


def test_each_rule_has_its_bar_and_each_training_its_line(progress, start):
    progress.update("run_info", {"stats": {"fetch_dataset": 1, "train_cpu": 4, "parse_logs": 4}})
    start(1, "fetch_dataset", dataset="d")
    progress.update("job_finished", {"job_id": 1})
    start(2, "train_cpu", cell="w=0", repeat=1)
    progress.update("job_finished", {"job_id": 2})
    start(3, "train_cpu", step=7, cell="w=1", repeat=1)
    start(4, "train_cpu", cell="w=2", repeat=1)
    train, parse, first, second, clock = picture(progress)
    assert train.split() == ["train_cpu", "━" * 24, "1/4"]
    assert parse.split() == ["parse_logs", "━" * 24, "0/4"], "what is done needs no bar"
    assert first == "cpu w=1, repeat 1: step 7, 16.0 samples/s per rank"
    assert second == "cpu w=2, repeat 1: starting"
    assert clock.startswith("0 s so far")


def test_jobs_in_a_queue_are_counted_and_have_no_line(progress, start):
    progress.update("resources_info", {"nodes": 32})
    progress.update("run_info", {"stats": {"train_h100": 12, "train_gaudi2": 2}})
    for number in range(SHOWN + 2):
        start(number, "train_h100", step=number + 1, cell=f"w={number}", repeat=1)
        progress.submitted(number, str(700 + number))
    start(90, "train_gaudi2", cell="w=0", repeat=1)
    progress.submitted(90, "790")
    h100, gaudi2, *lines, _ = picture(progress)
    assert h100.split()[2:] == ["0/12", "10", "running,", "0", "submitted"]
    assert gaudi2.split()[2:] == ["0/2", "0", "running,", "1", "submitted"]
    assert lines[0].startswith("h100 w=0, repeat 1: step 1, ")
    assert lines[SHOWN:] == ["… and 2 more"]
