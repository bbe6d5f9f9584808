"""What is made of how Slurm ended the tries before."""

from pathlib import Path

import msgspec
import pytest
from claims import SAME, away

from feedrate.core import slurm
from feedrate.jobs import predecessors
from feedrate.jobs.predecessors import ending_of_this_job, told, verdict_of
from feedrate.jobs.run_lock import Sight

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
    """Claims of these jobs, newest first as they are read."""
    found = [
        Sight(number=n, text="", holder=away(job=job, since=since, **values), note=note)
        for n, job in enumerate(jobs)
    ]
    return found[::-1]


def judge(earlier, job="99"):
    return verdict_of(RUN, earlier, SAME, "1", job)


def test_the_first_try_has_none_before_it(jobs):
    assert judge([]) is None


@pytest.mark.parametrize(
    "state", ["NODE_FAIL", "PREEMPTED", "CANCELLED", "FAILED", "BOOT_FAIL", "COMPLETED", "RUNNING"]
)
def test_what_another_try_may_mend_is_tried_again(jobs, state):
    jobs("12", state)
    assert judge(tries("12")) is None


def test_what_nobody_remembers_is_tried_again(jobs):
    assert judge(tries("12", "13")) is None


def test_want_of_host_memory_is_a_result(jobs):
    jobs("12", "OUT_OF_MEMORY", memory="64G", nodes="gaudi2-1")
    verdict = judge(tries("12"))
    assert verdict.status == "out_of_memory"
    assert "its limit of 64G on gaudi2-1 did not suffice" in verdict.cause
    assert verdict.cause.endswith(f"call again with --forcerun {RUN}/outcome.json")


def test_only_the_last_try_tells_of_memory(jobs):
    jobs("12", "OUT_OF_MEMORY")
    jobs("13", "NODE_FAIL")
    assert judge(tries("12", "13")) is None


def test_a_time_limit_is_tried_again_where_the_next_is_longer(jobs):
    jobs("12", "TIMEOUT", limit_min=30)
    jobs("99", "RUNNING", limit_min=60)
    assert judge(tries("12")) is None


@pytest.mark.parametrize("between", [(), ("20",)])
def test_the_longest_time_limit_is_a_result(jobs, between):
    jobs("12", "TIMEOUT", limit_min=30)
    jobs("20", "NODE_FAIL")
    jobs("13", "TIMEOUT", limit_min=60)
    jobs("99", "RUNNING", limit_min=60)
    verdict = judge(tries("12", *between, "13"))
    assert verdict.status == "failed"
    assert "time limit, 30 min and then 60 min: raise protocol.timeout_min" in verdict.cause


def test_a_lost_node_uses_up_the_longer_limit_too(jobs):
    jobs("12", "NODE_FAIL")
    jobs("13", "TIMEOUT", limit_min=60)
    jobs("99", "RUNNING", limit_min=60)
    assert "time limit, 60 min: " in judge(tries("12", "13")).cause


def test_no_limit_is_longer_than_any(jobs):
    jobs("12", "TIMEOUT", limit_min=30)
    jobs("13", "TIMEOUT", limit_min=30)
    jobs("99", "RUNNING", limit_min=None)
    assert judge(tries("12", "13")) is None


def test_where_slurm_is_silent_the_second_time_limit_counts(jobs):
    words = tries("12", note="ended TIMEOUT 30")
    assert judge(words) is None
    assert "30 min and then 30 min" in judge(tries("12", "13", note="ended TIMEOUT 30")).cause


def test_a_tries_own_last_words_count_before_slurms_memory(jobs):
    jobs("12", "FAILED")
    jobs("99", "RUNNING", limit_min=30)
    assert judge(tries("12", note="ended TIMEOUT 30")).status == "failed"


def test_a_renewed_claim_is_the_same_try(jobs):
    jobs("99", "PENDING")
    assert judge(tries("12", "12", note="ended TIMEOUT 30"), job="98") is None


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
    assert judge([Sight(number=1, text="", holder=away(**values))]) is None


@pytest.mark.parametrize("note", ["ended TIMEOUT", "ended TIMEOUT x", "ended a b c", "ended"])
def test_words_that_are_none_leave_it_to_slurm(jobs, note):
    jobs("12", "OUT_OF_MEMORY")
    assert judge(tries("12", note=note)).status == "out_of_memory"


def test_a_torn_claim_tells_nothing(jobs):
    assert judge([Sight(number=1, text="{")]) is None


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
    assert ending_of_this_job() == ending
    assert told(ending) == sentence


def test_outside_slurm_nobody_is_asked(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr(predecessors.slurm, "_ask", lambda *_: pytest.fail("asked"))
    assert ending_of_this_job() == ""
