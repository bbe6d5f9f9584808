"""Why a job failed, from records as Snakemake and its Slurm executor write them."""

import pytest

from feedrate.core import scheduler
from snakemake_logger_plugin_feedrate import ALIKE, UNKNOWN, Failures, cause

HINT = "For further error details see the cluster/cloud log and the log files."
SBATCH = (
    "SLURM sbatch failed. The error message was 'sbatch: error: invalid partition specified: nope\n"
    "sbatch: error: Batch job submission failed: Invalid partition name specified'.\n"
    "    sbatch call:\n        sbatch --parsable --job-name x\n" + HINT
)


def failed(number, state):
    return (
        f"SLURM-job '{number}' failed, SLURM status is: '{state}'. Detailed failure reason "
        f"unavailable (status command is not 'sacct').{HINT}"
    )


def record(message=None, log=(), rule="train_h100"):
    return {"rule_name": rule, "rule_msg": message, "log": list(log), "output": ["o"]}


def test_a_job_that_slurm_refuses():
    assert cause(record(SBATCH)) == (
        "Slurm refused the job: sbatch: error: invalid partition specified: nope; "
        "sbatch: error: Batch job submission failed: Invalid partition name specified"
    )


def ended(number, state):
    """The sentence about a job that Slurm ended."""
    job = scheduler.Job(str(number), state)
    return scheduler.why_ended(job) or f"Slurm job {number} ended as {state}"


@pytest.mark.parametrize("state", ["TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "FAILED"])
def test_a_job_that_slurm_ended(state):
    assert cause(record(failed(5, state))) == ended(5, state)


def test_a_lost_node_as_the_executor_words_it():
    message = (
        "SLURM-job '5' failed due to a node failure, SLURM status is: 'NODE_FAIL'. Failed nodes "
        f"will be excluded from future job submissions.{HINT}"
    )
    assert cause(record(message)) == ended(5, "NODE_FAIL")


def test_what_the_job_said_itself_is_told(tmp_path):
    log = tmp_path / "5.log"
    log.write_text("host: n1\nfeedrate train: first\nfeedrate train: no H100 here\nfailed\n")
    logs = [str(tmp_path / "absent.log"), str(log)]
    assert cause(record(failed(5, "FAILED"), logs)) == ("Slurm job 5 ended as FAILED: no H100 here")
    assert cause(record(None, logs)) == "no H100 here"


def test_a_step_killed_for_memory_is_told_where_slurm_says_failed(tmp_path):
    log = tmp_path / "5.log"
    log.write_text("slurmstepd: error: Exceeded job memory limit\nsrun: error: task 0: Killed\n")
    assert cause(record(failed(5, "FAILED"), [str(log)])) == ended(5, "OUT_OF_MEMORY")


def test_a_job_that_left_no_word():
    assert cause(record()) == UNKNOWN
    assert cause({"rule_msg": None, "log": None}) == UNKNOWN


def test_a_hundred_times_the_same_is_told_three_times_and_counted():
    failures = Failures()
    lines = [failures.line(record(failed(n, "NODE_FAIL")), f"rep {n}") for n in range(100)]
    assert [bool(line) for line in lines] == [True] * ALIKE + [False] * (100 - ALIKE)
    assert failures.line(record(failed(7, "TIMEOUT")), "rep 7")
    assert failures.rest() == [f"train_h100 failed 100 times: {ended(0, 'NODE_FAIL')}"]
