"""The result that the ends of earlier tries, and of smaller cells, make certain."""

import json
import os
from pathlib import Path

import pytest
from training_jobs import make_spec

from feedrate.core import slurm
from feedrate.jobs.supervisor import result_of_earlier_tries, smaller_out_of_memory
from feedrate.jobs.workplace import Workplace, leftovers


@pytest.fixture
def jobs(monkeypatch):
    """Slurm's memory: number to job."""
    known = {}
    monkeypatch.setattr(slurm, "find", known.get)

    def _add(number, state, **facts):
        known[number] = slurm.Job(id=number, state=state, **facts)

    return _add


@pytest.fixture
def run(tmp_path):
    return tmp_path / "rep1-0123abcd"


@pytest.fixture
def result_of(run):
    """The result after tries of these Slurm jobs, the oldest first, for a try of job 99."""

    def _result(*tokens, since="1.5", mine="1.5"):
        for age, token in enumerate(reversed(tokens)):
            place = run.with_name(f".{run.name}.{since}.{token}")
            place.mkdir()
            os.utime(place, (1e9 - age, 1e9 - age))
        return result_of_earlier_tries(run, Workplace(run.with_name("x"), mine, "slurm-99"))

    return _result


@pytest.mark.parametrize(
    "state", ["NODE_FAIL", "PREEMPTED", "CANCELLED", "FAILED", "BOOT_FAIL", "COMPLETED", "RUNNING"]
)
def test_what_another_try_may_mend_is_tried_again(jobs, result_of, state):
    jobs("12", state)
    assert result_of("slurm-12") is None


def test_want_of_host_memory_is_a_result(jobs, run, result_of):
    jobs("12", "OUT_OF_MEMORY", memory="64G", nodes="gaudi2-1")
    result = result_of("slurm-12")
    assert result.status == "out_of_memory"
    assert "its limit of 64G on gaudi2-1 was too low" in result.cause
    assert result.cause.endswith(f"call again with --forcerun {run}/outcome.json")


def test_a_time_limit_is_tried_again_where_the_next_is_longer(jobs, result_of):
    jobs("12", "TIMEOUT", limit_min=30)
    jobs("99", "RUNNING", limit_min=60)
    assert result_of("slurm-12") is None


@pytest.mark.parametrize("between", [(), ("slurm-20",)])
def test_the_longest_time_limit_is_a_result(jobs, result_of, between):
    jobs("12", "TIMEOUT", limit_min=30)
    jobs("20", "NODE_FAIL")
    jobs("13", "TIMEOUT", limit_min=60)
    jobs("99", "RUNNING", limit_min=60)
    result = result_of("slurm-12", *between, "slurm-13")
    assert result.status == "failed"
    assert "time limit, 30 min and then 60 min: raise protocol.timeout_min" in result.cause


def test_a_lost_node_uses_up_the_longer_limit_too(jobs, result_of):
    jobs("12", "NODE_FAIL")
    jobs("13", "TIMEOUT", limit_min=60)
    jobs("99", "RUNNING", limit_min=60)
    assert "time limit, 60 min: " in result_of("slurm-12", "slurm-13").cause


@pytest.mark.parametrize(
    ("token", "calls"),
    [
        ("slurm-12", {"since": "2"}),  # of another call
        ("slurm-12", {"since": "0", "mine": "0"}),  # started by hand
        ("slurm-99", {}),  # this very job
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


@pytest.mark.parametrize("status", ["ok", "failed"])
def test_only_running_out_of_memory_decides(tmp_path, status):
    assert smaller_out_of_memory([ended(tmp_path / "cell", 1, status)]) is None


def test_a_cell_that_fits_in_one_repeat_decides_nothing(tmp_path):
    runs = [ended(tmp_path / "cell", 1, "out_of_memory"), ended(tmp_path / "cell", 2, "ok")]
    assert smaller_out_of_memory(runs) is None


def test_a_cell_that_was_not_tried_itself_decides_nothing(tmp_path):
    not_run = ended(tmp_path / "cell", 1, "out_of_memory", smaller="batch=8/rep1-0123abcd")
    assert smaller_out_of_memory([not_run]) is None


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
