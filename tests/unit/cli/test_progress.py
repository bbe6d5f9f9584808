import os

from feedrate.cli.display import Progress, duration
from feedrate.jobs.events import EventLog, Step


def record(**values):
    return values


def started(progress, job_id, rule, **wildcards):
    progress.update(
        "job_info", record(jobid=job_id, rule_name=rule, wildcards=wildcards, output=[])
    )


def test_counts_by_rule_and_says_what_is_left(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("feedrate.cli.display.time.monotonic", lambda: clock[0])
    progress = Progress()
    line = progress.update("run_info", record(stats={"train_cpu": 4, "parse_logs": 4, "total": 8}))
    assert line == "8 jobs: train_cpu 4, parse_logs 4"
    assert progress.left_s() is None
    started(progress, 1, "train_cpu", cell="workers=0", repeat="1")
    clock[0] = 10.0
    line = progress.update("job_finished", record(job_id=1))
    assert line.startswith("train_cpu 1/4  workers=0, repeat 1  10 s; about 30 s left")
    assert progress.left_s() == 30.0
    started(progress, 2, "train_cpu", cell="workers=1", repeat="1")
    clock[0] = 14.0
    assert progress.left_s() == 26.0


def test_failed_and_unknown_jobs_do_not_confuse_it():
    progress = Progress()
    progress.update("run_info", record(stats={"all": 1, "total": 1}))
    started(progress, 7, "train_cpu", cell="c", repeat="1")
    progress.update("job_error", record(jobid=7))
    progress.update("job_finished", record(job_id=99))
    assert progress.running == {}
    assert progress.done == {}


def test_nothing_to_do_is_said():
    progress = Progress()
    line = progress.update("run_info", record(stats={}))
    assert line == "nothing to do"


def test_one_job_is_no_plural_and_the_plan_speaks_for_itself():
    progress = Progress()
    line = progress.update("run_info", record(stats={"all": 1, "total": 1}))
    assert line == "1 job: all 1"
    line = progress.update("run_info", record(stats={"plan": 1, "total": 1}))
    assert line == ""
    started(progress, 1, "plan")
    line = progress.update("job_finished", record(job_id=1))
    assert line == ""


def test_durations_read_well():
    assert [duration(s) for s in (0.4, 59, 60, 3_605, 7_384)] == [
        "0 s",
        "59 s",
        "1:00",
        "1:00:05",
        "2:03:04",
    ]


def test_on_a_cluster_it_tells_of_the_queue_and_of_the_pace(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("feedrate.cli.display.time.monotonic", lambda: clock[0])
    progress = Progress(started_s=0.0)
    progress.update("resources_info", record(nodes=20))
    progress.update("run_info", record(stats={"train_h100": 4, "parse_logs": 4, "total": 8}))
    for job_id in (1, 2, 3, 4):
        started(progress, job_id, "train_h100", cell=f"workers={job_id}", repeat="1")
    line = progress.submitted(3, "812")
    assert line == "train_h100  workers=3, repeat 1: submitted (Slurm job 812)"
    started(progress, 9, "parse_logs", cell="c", repeat="1")
    progress.submitted(9, "813")
    line = progress.submitted(77, "814")
    assert line == ""
    clock[0] = 100.0
    progress.update("job_finished", record(job_id=1))
    line = progress.update("job_finished", record(job_id=2))
    assert progress.left_s() == 100.0, "two in 100 s, and two to go: side by side, not in turn"
    assert line.startswith("train_h100 2/4  workers=2, repeat 1  after 1:40; about 1:40 left")


def test_the_step_of_the_newest_attempt(tmp_path):
    progress = Progress()
    progress.update("run_info", record(stats={"train_cpu": 1, "total": 1}))
    out = str(tmp_path / "outcome.json")
    progress.update("job_info", record(jobid=1, rule_name="train_cpu", wildcards={}, output=[out]))
    job = progress.running[1]
    assert job.step() == "", "nothing of it is seen before its first event"
    for number, (attempt, step) in enumerate([("attempt-b", 7), ("attempt-a", 2)]):
        events = tmp_path / attempt / "events.jsonl"
        events.parent.mkdir()
        EventLog(events.parent, 0).write(Step(rank=0, step=step, samples=8, step_s=0.5))
        events.write_text(events.read_text() + '{"event": "st')
        os.utime(events, (number, number))
    assert job.step() == "step 2, 16.0 samples/s per rank"
