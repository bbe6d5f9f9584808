"""A run's folder is complete or absent, whoever works on it and whenever a job is killed."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from feedrate.core import scheduler
from feedrate.jobs import workplace
from feedrate.jobs.workplace import (
    cause_of_missing,
    is_complete,
    leftovers,
    parts_of,
    publish,
    remove_ended,
)

NAME = "rep1-0123abcd"


def fill(folder: Path, **files: str) -> Path:
    """A folder with `files` (`__` stands for a dot)."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def finished(folder: Path, by: str) -> Path:
    """A folder as a job leaves it before it publishes."""
    return fill(folder, events__jsonl=by, outcome__json=json.dumps({"by": by}))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def run(tmp_path):
    return tmp_path / "cell" / NAME


@pytest.fixture
def place(run):
    return finished(workplace.workplace(run, "17.5").path, "me")


@pytest.fixture
def jobs(monkeypatch):
    """Slurm's memory: number to job."""
    known = {}
    monkeypatch.setattr(scheduler, "find", known.get)
    return known


def test_a_runs_name_has_its_identity_and_attempt():
    assert parts_of(Path("a/rep12-0123abcd")) == ("0123abcd", 1)
    assert parts_of(Path("a/rep1-0123abcd-3")) == ("0123abcd", 3)
    assert parts_of(Path("a/anything")) == ("", 1)


def test_a_workplace_names_its_call_and_its_job(run, place, monkeypatch):
    host = socket.gethostname()
    assert place.name.startswith(f".{NAME}.17.5.pid-{os.getpid()}-")
    assert place.name.endswith(f"@{host}")
    fill(run.with_name(f".{NAME}-2.17.5.job-3"))  # of another attempt
    (mine,) = leftovers(run)
    assert (mine.path, mine.since, mine.job, mine.is_at_work) == (place, "17.5", "", True)
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    made = workplace.workplace(run, "0")
    assert (made.path.name, made.job) == (f".{NAME}.0.job-12", "12")


@pytest.mark.parametrize("empty", [True, False])
def test_a_workplace_becomes_the_run_in_one_step(run, place, empty):
    if empty:
        run.mkdir()  # as Snakemake does before a job
    assert publish(place, run)
    assert names(run) == ["events.jsonl", "outcome.json"]
    assert names(run.parent) == [NAME]


def test_the_first_to_publish_counts(run, place):
    other = finished(run.with_name(f".{NAME}.17.5.job-4"), "other")
    assert publish(other, run)
    assert not publish(place, run)
    assert (run / "events.jsonl").read_text() == "other"
    assert names(run.parent) == [NAME]


def test_a_run_without_its_outcome_is_replaced(run, place):
    """Snakemake removes the outcome to force a new run."""
    fill(run, events__jsonl="old", trace="old")
    assert publish(place, run)
    assert (run / "events.jsonl").read_text() == "me"
    assert names(run) == ["events.jsonl", "outcome.json"]


def test_a_job_that_publishes_while_another_replaces_the_run_is_first(run, place, monkeypatch):
    fill(run, events__jsonl="old")
    asked = []

    def is_complete_late(folder: Path) -> bool:
        if not asked:  # between the look and the step
            asked.append(folder)
            finished(run, "other")
            return False
        return is_complete(folder)

    monkeypatch.setattr(workplace, "is_complete", is_complete_late)
    assert not publish(place, run)
    assert (run / "events.jsonl").read_text() == "other"
    assert names(run.parent) == [NAME]


KILLED = """
import os, signal, sys
from pathlib import Path
from feedrate.jobs import workplace
steps = int(sys.argv[1])

def kill_before(event, arguments):
    global steps
    if event in ("os.rename", "os.remove", "os.rmdir", "shutil.rmtree"):
        steps -= 1
        if steps < 0:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(kill_before)
workplace.publish(Path(sys.argv[2]), Path(sys.argv[3]))
print("published")
"""


@pytest.mark.parametrize("before", ["nothing", "empty", "forced", "complete"])
def test_a_kill_between_any_two_steps_leaves_a_run_complete_or_absent(tmp_path, before):
    outcomes = set()
    for steps in range(12):
        run = tmp_path / str(steps) / NAME
        if before != "nothing":
            run.mkdir(parents=True)
        if before == "forced":
            fill(run, events__jsonl="old", spec__json="old")
        if before == "complete":
            finished(run, "other")
        place = finished(run.with_name(f".{NAME}.0.job-4"), "me")
        command = [sys.executable, "-c", KILLED, str(steps), str(place), str(run)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if is_complete(run):
            by = "other" if before == "complete" else "me"
            assert (run / "events.jsonl").read_text() == by
            assert names(run) == ["events.jsonl", "outcome.json"]
        complete = is_complete(run)
        outcomes.add((complete, ended.returncode))
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL
        assert publish(finished(place, "me"), run) is not complete  # the next try
    assert (True, 0) in outcomes


def test_workplaces_of_ended_jobs_are_removed_and_others_stay(run, place, jobs, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "20")
    jobs["4"] = scheduler.Job(id="4", state="CANCELLED")
    jobs["5"] = jobs["20"] = scheduler.Job(id="5", state="RUNNING")
    host = socket.gethostname()
    alive = [place.name, f".{NAME}.1.job-5", f".{NAME}.1.pid-1-1@another"]
    ended = [f".{NAME}.1.job-{job}" for job in ("4", "6", "20")]  # Slurm has forgotten the second
    ended.append(f".{NAME}.1.pid-{os.getpid()}-1@{host}")  # its number was given away again
    for name in (*alive, *ended):
        fill(run.with_name(name))
    remove_ended(run)
    assert names(run.parent) == sorted(alive)


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        ("TIMEOUT", "Slurm job 4 ended as TIMEOUT: it reached its time limit"),
        ("NODE_FAIL", "Slurm job 4 ended as NODE_FAIL: its node was lost"),
        (
            "OUT_OF_MEMORY",
            "Slurm job 4 ended as OUT_OF_MEMORY: it used more host memory than it requested",
        ),
        ("FAILED", "the device is gone"),  # which explains nothing
        ("RUNNING", "its job has not ended"),
        (None, "the device is gone"),
    ],
)
def test_the_last_jobs_end_in_slurm_is_why_a_run_is_missing(run, jobs, state, cause):
    if state:
        jobs["4"] = scheduler.Job(id="4", state=state)
    fill(run.with_name(f".{NAME}.1.job-4"))
    log = "feedrate train: the disk is full\nfeedrate train: the device is gone\n"
    fill(run.parent, **{f"{NAME}__log": log})
    assert cause_of_missing(run) == cause


def test_without_slurm_its_log_tells(run, jobs):
    assert cause_of_missing(run) == "no job of this run has ended"
    host = socket.gethostname()
    dead = fill(run.with_name(f".{NAME}.1.pid-{os.getpid()}-1@{host}"))
    assert "probably it was killed" in cause_of_missing(run)
    fill(dead, train__log="step 1\nfeedrate train: no backend\nTraceback\n")
    assert cause_of_missing(run) == "no backend"
    fill(run.parent, **{f"{NAME}__log": "feedrate train: stopped by SIGTERM\n"})
    assert cause_of_missing(run) == "stopped by SIGTERM"
