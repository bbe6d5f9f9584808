"""The result that the ends of earlier tries, and of smaller cells, make certain."""

import json
import os
from pathlib import Path

import pytest
from training_jobs import make_spec

from feedrate.core import scheduler
from feedrate.jobs.supervisor import result_of_earlier_tries, smaller_out_of_memory
from feedrate.jobs.workplace import Workplace, leftovers


@pytest.fixture
def jobs(monkeypatch):
    """Slurm's memory: number to job."""
    known = {}
    monkeypatch.setattr(scheduler, "find", known.get)

    def _add(number, state, **facts):
        known[number] = scheduler.Job(id=number, state=state, **facts)

    return _add


@pytest.fixture
def run(tmp_path):
    return tmp_path / "rep1-0123abcd"


@pytest.fixture
def result_of(run):
    """The result after tries of these Slurm jobs, the oldest first, for a try of job 99."""

    def _result(*tokens, since="1.5", own="1.5"):
        for age, token in enumerate(reversed(tokens)):
            place = run.with_name(f".{run.name}.{since}.{token}")
            place.mkdir()
            os.utime(place, (1e9 - age, 1e9 - age))
        return result_of_earlier_tries(run, Workplace(run.with_name("x"), own, "job-99"))

    return _result


@pytest.mark.parametrize(
    "state", ["NODE_FAIL", "PREEMPTED", "CANCELLED", "FAILED", "BOOT_FAIL", "COMPLETED", "RUNNING"]
)
def test_what_another_try_may_mend_is_tried_again(jobs, result_of, state):
    jobs("12", state)
    assert result_of("job-12") is None


def test_want_of_host_memory_is_a_result(jobs, run, result_of):
    jobs("12", "OUT_OF_MEMORY", memory="64G", nodes="gaudi2-1")
    result = result_of("job-12")
    assert result.status == "out_of_memory"
    assert "its limit of 64G on gaudi2-1 was too low" in result.cause
    assert result.cause.endswith(f"call again with --forcerun {run}/outcome.json")


@pytest.mark.parametrize(
    ("tries", "limit_min", "listed"),
    [
        (["job-12"], 60, None),  # this try has a longer limit
        (["job-12", "job-13"], 60, "30 min and then 60 min"),
        (["job-12", "job-20", "job-13"], 60, "30 min and then 60 min"),
        (["job-20", "job-13"], 60, "60 min"),  # a lost node used up the shorter one
    ],
)
def test_the_longest_time_limit_is_a_result(jobs, result_of, tries, limit_min, listed):
    jobs("12", "TIMEOUT", limit_min=30)
    jobs("20", "NODE_FAIL")
    jobs("13", "TIMEOUT", limit_min=60)
    jobs("99", "RUNNING", limit_min=limit_min)
    result = result_of(*tries)
    assert (result is None) == (listed is None)
    if result:
        assert result.status == "failed"
        assert f"time limit, {listed}: raise protocol.timeout_min" in result.cause


@pytest.mark.parametrize(
    ("token", "calls"),
    [
        ("job-12", {"since": "2"}),  # of another call
        ("job-12", {"since": "0", "own": "0"}),  # started by hand
        ("job-99", {}),  # this very job
        ("pid-1-1@here", {}),  # killed on this host: nothing is known
    ],
)
def test_other_jobs_decide_nothing(jobs, result_of, token, calls):
    jobs("12", "OUT_OF_MEMORY")
    jobs("99", "OUT_OF_MEMORY")
    assert result_of(token, **calls) is None


def ended(cell: Path, repeat: int, status: str, **more: str) -> Path:
    """A repeat of a cell that ended like this."""
    run = cell / f"rep{repeat}-0123abcd"
    run.mkdir(parents=True)
    (run / "outcome.json").write_text(json.dumps({"status": status, **more}))
    return run


def test_a_cell_that_ran_out_of_memory_decides_for_one_that_needs_more(tmp_path):
    fits = [ended(tmp_path / "batch=8", repeat, "ok") for repeat in (1, 2)]
    missing = tmp_path / "batch=16" / "rep1-0123abcd"
    ran_out = ended(tmp_path / "batch=16", 2, "out_of_memory")
    assert smaller_out_of_memory([*fits, missing, ran_out]) == ran_out
    assert smaller_out_of_memory([*fits, missing]) is None
    failed = ended(tmp_path / "batch=16", 3, "failed")
    assert smaller_out_of_memory([failed]) is None
    fits_too = ended(tmp_path / "batch=16", 4, "ok")
    assert smaller_out_of_memory([ran_out, fits_too]) is None, "it fits in one repeat"
    not_tried = ended(tmp_path / "batch=32", 1, "out_of_memory", smaller=str(ran_out))
    assert smaller_out_of_memory([not_tried]) is None


def test_a_job_that_is_not_tried_ends_in_an_outcome_that_says_why(start, tmp_path):
    smaller = ended(tmp_path / "batch=8", 1, "out_of_memory")
    job = start(make_spec(), "--smaller", str(smaller))
    code, output = job.wait()
    assert code == 0, output
    outcome = json.loads((job.out / "outcome.json").read_text())
    assert outcome["status"] == "out_of_memory"
    assert outcome["cause"].startswith("Not tried: batch=8 ran out of memory")
    assert outcome["smaller"] == str(smaller)
    assert sorted(path.name for path in job.out.iterdir()) == ["outcome.json", "spec.json"]
    assert leftovers(job.out) == []
