"""Progress on stderr."""

import pytest

from snakemake_logger_plugin_feedrate import Progress


@pytest.fixture
def clock(monkeypatch):
    """The time, s."""
    now_s = [0.0]
    monkeypatch.setattr("snakemake_logger_plugin_feedrate.time.monotonic", lambda: now_s[0])
    return now_s


@pytest.fixture
def progress(clock):
    return Progress(quiet=False)


@pytest.fixture
def start(progress):
    def start(number, rule, **wildcards):
        progress.start({"jobid": number, "rule_name": rule, "wildcards": wildcards})

    return start


def lines(capsys):
    return [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()]


def test_jobs_are_counted_with_the_time_left(progress, start, clock, capsys):
    progress.begin({"train_cpu": 4, "parse_logs": 4, "all": 1, "total": 9})
    start(1, "train_cpu", cell="workers=0", repeat="1")
    clock[0] = 10.0
    progress.finish(1)
    start(2, "train_cpu", cell="workers=1", repeat="1")
    start(3, "parse_logs", device="cpu")
    assert lines(capsys) == [
        "4 training runs and 4 other jobs to do",
        "train_cpu 1/4  workers=0, repeat 1  10 s; about 30 s left",
    ]


def test_on_a_cluster_the_time_includes_the_queue(progress, start, clock, capsys):
    progress.begin({"train_h100": 2})
    start(1, "train_h100", cell="w=1", repeat="1")
    progress.submit(1, "701")
    clock[0] = 100.0
    progress.finish(1)
    assert lines(capsys)[1:] == [
        "train_h100  w=1, repeat 1: submitted (Slurm job 701)",
        "train_h100 1/2  w=1, repeat 1  after 1:40; about 1:40 left",
    ]


def test_the_first_line_is_short_however_many_rules_there_are(progress, capsys):
    rules = [f"train_device_{number}" for number in range(50)]
    progress.begin(dict.fromkeys([*rules, "collect_results"], 200))
    assert lines(capsys) == ["10,000 training runs and 200 other jobs to do"]
