from feedrate.progress import Progress, duration


def record(**values):
    return values


def started(progress, job_id, rule, **wildcards):
    progress.update(
        "job_info", record(jobid=job_id, rule_name=rule, wildcards=wildcards, output=[])
    )


def test_counts_by_rule_and_says_what_is_left(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("feedrate.progress.time.monotonic", lambda: clock[0])
    progress = Progress()
    progress.update("run_info", record(stats={"train_cpu": 4, "parse_log": 4, "total": 8}))
    assert progress.latest == "8 jobs: train_cpu 4, parse_log 4"
    assert progress.left_s() is None
    started(progress, 1, "train_cpu", cell="workers=0", repeat="1")
    clock[0] = 10.0
    progress.update("job_finished", record(job_id=1))
    assert progress.latest.startswith("train_cpu 1/4  workers=0 rep 1  10 s; about 30 s left")
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
    progress.update("run_info", record(stats={}))
    assert progress.latest == "nothing to do"


def test_durations_read_well():
    assert [duration(s) for s in (None, 0.4, 59, 60, 3_605, 7_384)] == [
        "?",
        "0 s",
        "59 s",
        "1:00",
        "1:00:05",
        "2:03:04",
    ]
