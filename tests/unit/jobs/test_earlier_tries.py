"""The result that the ends of earlier tries make certain."""

from pathlib import Path

import msgspec
import pytest
from lock_holders import SAME, away, holder

from feedrate.core import slurm
from feedrate.jobs.earlier import describe_stop, result_of_earlier_tries, slurm_stop_reason
from feedrate.jobs.run_lock import LockEntry

RUN = Path("results/study/gaudi2/batch=64/rep1")


@pytest.fixture
def jobs(monkeypatch):
    """Slurm's memory: number to job."""
    known = {}
    monkeypatch.setattr(slurm, "find", lambda number: known.get(number))

    def _add(number, state, **facts):
        known[number] = slurm.Job(id=number, state=state, **facts)

    return _add


def tries(*jobs, since="1", note="alive 3", **values):
    """Locks of these jobs, newest first as they are read."""
    found = [
        LockEntry(number=n, text="", holder=away(job=job, since=since, **values), note=note)
        for n, job in enumerate(jobs)
    ]
    return found[::-1]


def result_of(earlier, job="99"):
    return result_of_earlier_tries(RUN, earlier, holder(job=job), "1")


@pytest.mark.parametrize(
    "state", ["NODE_FAIL", "PREEMPTED", "CANCELLED", "FAILED", "BOOT_FAIL", "COMPLETED", "RUNNING"]
)
def test_what_another_try_may_mend_is_tried_again(jobs, state):
    jobs("12", state)
    assert result_of(tries("12")) is None


def test_want_of_host_memory_is_a_result(jobs):
    jobs("12", "OUT_OF_MEMORY", memory="64G", nodes="gaudi2-1")
    result = result_of(tries("12"))
    assert result.status == "out_of_memory"
    assert "its limit of 64G on gaudi2-1 was too low" in result.cause
    assert result.cause.endswith(f"call again with --forcerun {RUN}/outcome.json")


def test_a_time_limit_is_tried_again_where_the_next_is_longer(jobs):
    jobs("12", "TIMEOUT", limit_min=30)
    jobs("99", "RUNNING", limit_min=60)
    assert result_of(tries("12")) is None


@pytest.mark.parametrize("between", [(), ("20",)])
def test_the_longest_time_limit_is_a_result(jobs, between):
    jobs("12", "TIMEOUT", limit_min=30)
    jobs("20", "NODE_FAIL")
    jobs("13", "TIMEOUT", limit_min=60)
    jobs("99", "RUNNING", limit_min=60)
    result = result_of(tries("12", *between, "13"))
    assert result.status == "failed"
    assert "time limit, 30 min and then 60 min: raise protocol.timeout_min" in result.cause


def test_a_lost_node_uses_up_the_longer_limit_too(jobs):
    jobs("12", "NODE_FAIL")
    jobs("13", "TIMEOUT", limit_min=60)
    jobs("99", "RUNNING", limit_min=60)
    assert "time limit, 60 min: " in result_of(tries("12", "13")).cause


def test_a_tries_own_last_words_count_before_slurms_memory(jobs):
    jobs("12", "FAILED")
    jobs("99", "RUNNING", limit_min=30)
    assert result_of(tries("12", note="ended TIMEOUT 30")).status == "failed"


@pytest.mark.parametrize(
    "values",
    [
        {"since": "2"},
        {"job": ""},
        {"identity": msgspec.structs.replace(SAME, spec="t")},
        {"job": "99"},
    ],
)
def test_other_drivers_other_settings_and_this_very_job_do_not_count(jobs, values):
    jobs("12", "OUT_OF_MEMORY")
    jobs("99", "OUT_OF_MEMORY")
    values = {"job": "12", "since": "1", **values}
    assert result_of([LockEntry(number=1, text="", holder=away(**values))]) is None


@pytest.mark.parametrize(
    ("job", "ending", "sentence"),
    [
        (None, "", ""),
        ({"state": "RUNNING", "limit_min": 30, "ran_min": 3}, "", ""),
        ({"state": "COMPLETING", "limit_min": 30, "ran_min": 3}, "", ""),
        (
            {"state": "COMPLETING", "reason": "TimeLimit", "limit_min": 30},
            "TIMEOUT 30",
            "Slurm's time limit of 30 min",
        ),
        (
            {"state": "RUNNING", "limit_min": 90.5, "ran_min": 89.6},
            "TIMEOUT 90.5",
            "Slurm's time limit of 90.5 min",
        ),
        ({"state": "PREEMPTED"}, "PREEMPTED", "Slurm calls the job PREEMPTED"),
    ],
)
def test_a_job_that_is_stopped_says_what_slurm_stops_it_for(
    jobs, monkeypatch, job, ending, sentence
):
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    if job:
        jobs("12", **job)
    assert slurm_stop_reason() == ending
    assert describe_stop(ending) == sentence
