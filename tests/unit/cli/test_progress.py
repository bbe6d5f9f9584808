"""Progress on stderr: as lines, and as the picture on a terminal."""

import io
import os

import pytest
from rich.console import Console

from feedrate.cli.display import SHOWN, Progress, duration
from feedrate.jobs.events import EventLog, Step


@pytest.fixture
def clock(monkeypatch):
    """The time, s."""
    now_s = [0.0]
    monkeypatch.setattr("feedrate.cli.display.time.monotonic", lambda: now_s[0])
    return now_s


@pytest.fixture
def progress(clock):
    return Progress(enabled=True)


@pytest.fixture
def start(progress, tmp_path):
    """Starts a job; it has made `step` steps."""

    def start(number, rule, step=0, **wildcards):
        run = tmp_path / str(number)
        if step:
            attempt = run / "attempt-x"
            attempt.mkdir(parents=True)
            EventLog(attempt, 0).write(Step(rank=0, step=step, samples=8, step_s=0.5))
        job = {"jobid": number, "rule_name": rule, "wildcards": wildcards}
        progress.start(job | {"output": [str(run / "outcome.json")]})

    return start


def picture(progress):
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(progress._draw())
    return console.export_text().splitlines()


def lines(capsys):
    return [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()]


def test_jobs_are_counted_with_the_time_left(progress, start, clock, capsys):
    progress.begin({"train_cpu": 4, "parse_logs": 4, "total": 8})
    start(1, "train_cpu", cell="workers=0", repeat="1")
    clock[0] = 10.0
    progress.finish(1)
    start(2, "train_cpu", step=7, cell="workers=1", repeat="1")
    start(3, "parse_logs", device="cpu")
    assert lines(capsys) == [
        "8 jobs: train_cpu 4, parse_logs 4",
        "train_cpu 1/4  workers=0, repeat 1  10 s; about 30 s left",
    ]
    clock[0] = 14.0
    assert picture(progress) == [
        "train_cpu workers=1, repeat 1: step 7, 16.0 samples/s per rank",
        "parse_logs cpu: running",
        "1/8 jobs, 14 s so far; about 42 s left",
    ]


def test_on_a_cluster_it_shows_the_queue_and_the_pace(progress, start, clock, capsys):
    progress.begin({"train_h100": SHOWN + 3})
    for number in range(SHOWN + 3):
        start(number, "train_h100", step=number, cell=f"w={number}", repeat="1")
        progress.submit(number, str(700 + number))
    assert lines(capsys)[1] == "train_h100  w=0, repeat 1: submitted (Slurm job 700)"
    *shown, total = picture(progress)
    assert len(shown) == SHOWN
    assert shown[0].startswith("train_h100 w=1, repeat 1: step 1, ")
    assert total == f"0/{SHOWN + 3} jobs, 1 submitted, 0 s so far"
    clock[0] = 100.0
    progress.finish(1)
    assert "after 1:40; about " in lines(capsys)[0]


def test_failed_and_unknown_jobs_do_not_confuse_it(progress, capsys):
    progress.begin({})
    progress.finish(99)
    progress.submit(99, "814")
    assert lines(capsys) == ["nothing to do"]


def test_the_step_of_the_newest_attempt(progress, start, tmp_path):
    start(1, "train_cpu", cell="w=0", repeat="1")
    job = progress.running[1]
    assert job.step() == ""
    for number, (attempt, step) in enumerate([("attempt-b", 7), ("attempt-a", 2)]):
        events = tmp_path / "1" / attempt / "events.jsonl"
        events.parent.mkdir(parents=True)
        EventLog(events.parent, 0).write(Step(rank=0, step=step, samples=8, step_s=0.5))
        events.write_text(events.read_text() + '{"event": "st')
        os.utime(events, (number, number))
    assert job.step() == "step 2, 16.0 samples/s per rank"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (60, "1:00"), (7384, "2:03:04")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text
