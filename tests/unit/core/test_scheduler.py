"""What is made of Slurm's answers, by commands that stand in for its own."""

import os
from pathlib import Path

import pytest

from feedrate.core import scheduler
from feedrate.core.scheduler import Job, SchedulerError, cancel, find, minutes, own_jobs

NAME = "feedrate_0d7e2c9c-6c4f-4f0e-9a39-1f8f0a2c51aa"


def row(**values):
    """One job as squeue prints it."""
    job = {"id": "7", "state": "RUNNING", "reason": "None", "nodes": "gaudi2-1", "limit": "1:00:00"}
    job |= {"ran": "30:00", "memory": "64G", "name": NAME, "rule": "rule_train_gaudi2"}
    return "\x1f".join((job | {"folder": str(Path.cwd())} | values).values())


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Make a command: what it prints, what it complains of, how it ends; its arguments are kept."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def _make(name, text="", error="", code=0):
        (tmp_path / f"{name}.out").write_text(text)
        script = tmp_path / name
        script.write_text(
            f'#!/bin/sh\necho "$@" >> {tmp_path}/{name}.args\ncat {tmp_path}/{name}.out\n'
            f"echo '{error}' >&2\nexit {code}\n"
        )
        script.chmod(0o755)
        return tmp_path / f"{name}.args"

    return _make


@pytest.fixture
def nothing(tmp_path, monkeypatch):
    """A machine without Slurm."""
    monkeypatch.setenv("PATH", str(tmp_path))


def test_without_slurm_nothing_is_known_and_nothing_fails(nothing):
    assert find("7") is None
    assert own_jobs() == []
    cancel([])


def test_a_job_that_cannot_be_cancelled_is_told(nothing):
    with pytest.raises(SchedulerError, match=r"^scancel: .*No such file"):
        cancel([Job(id="7", state="RUNNING")])


def test_a_job_is_found_with_what_it_asked_for(command):
    command("squeue", row(state="TIMEOUT", reason="TimeLimit") + "\n")
    job = find("7")
    assert job == Job(
        id="7",
        state="TIMEOUT",
        reason="TimeLimit",
        nodes="gaudi2-1",
        limit_min=60.0,
        ran_min=30.0,
        memory="64G",
        name=NAME,
        rule="rule_train_gaudi2",
        folder=str(Path.cwd()),
    )
    assert job.is_over


MEMORY = [
    "slurmstepd-n1: error: StepId=7.0 exceeded memory limit (538116096 > 314572800), being killed",
    "slurmstepd: error: Exceeded job memory limit",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been "
    "OOM Killed.",
    "slurmstepd: error: Detected 2 oom-kill event(s) in StepId=7.0 cgroup.",
]


@pytest.mark.parametrize("line", MEMORY)
def test_a_failed_job_whose_step_was_killed_for_memory_is_out_of_memory(command, tmp_path, line):
    log = tmp_path / "a log.txt"
    log.write_text(f"before\n{line}\nsrun: error: n1: task 0: Killed\n")
    command("squeue", row(state="FAILED") + "\n")
    command("scontrol", f"JobId=7 JobName=x\n   StdErr={log}\n   StdOut={log}\n   Power=\n")
    assert find("7").state == "OUT_OF_MEMORY"
    command("squeue", row(state="COMPLETED") + "\n")
    assert find("7").state == "COMPLETED"


@pytest.mark.parametrize("text", ["", "   StdOut=/not/there\n", "   StdOut={log}\n"])
def test_a_failed_job_that_says_nothing_of_memory_has_failed(command, tmp_path, text):
    log = tmp_path / "log"
    log.write_text("slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED ***\n")
    command("squeue", row(state="FAILED") + "\n")
    command("scontrol", text.format(log=log))
    assert find("7").state == "FAILED"


def test_a_job_that_the_controller_forgot_is_in_the_accounting(command):
    command("squeue", error="slurm_load_jobs error: Invalid job id specified", code=1)
    command("sacct", "CANCELLED by 1000|gaudi2-2|00:30:00|00:00:09|64G\n")
    assert find("7") == Job(
        id="7", state="CANCELLED", nodes="gaudi2-2", limit_min=30.0, ran_min=0.15, memory="64G"
    )


@pytest.mark.parametrize(("text", "code"), [("", 0), ("", 1)])
def test_a_job_that_nobody_remembers_is_unknown(command, text, code):
    command("squeue", error="slurm_load_jobs error: Invalid job id specified", code=1)
    command("sacct", text, error="Slurm accounting storage is disabled", code=code)
    assert find("7") is None


def test_own_jobs_are_those_of_this_folder_with_our_name(command, tmp_path, monkeypatch):
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "link").symlink_to(project)
    rows = [
        row(id="1", folder=str(project)),
        row(id="2", folder=str(tmp_path)),
        row(id="3", folder=str(project), name="feedrate-analysis"),
        row(id="4", folder=str(project), name=NAME.removeprefix("feedrate_")),
        row(id="5", folder=str(tmp_path / "link"), state="PENDING", nodes=""),
        "slurm: a line that is no job",
    ]
    asked = command("squeue", "\n".join(rows) + "\n")
    assert [job.id for job in own_jobs(project)] == ["1", "5"]
    monkeypatch.chdir(project)
    assert [job.id for job in own_jobs()] == ["1", "5"]
    assert f"--user {os.getuid()}" in asked.read_text()


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (Job("7", "NODE_FAIL"), "Slurm job 7 ended as NODE_FAIL: its node was lost"),
        (Job("7", "TIMEOUT", limit_min=90.0), "it reached its time limit of 90 min"),
        (Job("7", "OUT_OF_MEMORY", memory="64G"), "more host memory than it requested (64G)"),
        *((Job("7", state), "") for state in ("RUNNING", "COMPLETED", "FAILED", "PENDING")),
    ],
)
def test_why_a_job_ended(job, reason):
    why = scheduler.why_ended(job)
    assert why.endswith(reason)
    assert bool(why) == bool(reason)


def test_a_controller_that_does_not_answer_is_taken_for_absent(tmp_path, monkeypatch):
    monkeypatch.setattr(scheduler, "ANSWER_S", 0.2)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name in ("squeue", "sacct"):
        (tmp_path / name).write_text("#!/bin/sh\nexec sleep 30\n")
        (tmp_path / name).chmod(0o755)
    assert find("7") is None


@pytest.mark.parametrize(
    ("job", "phrase"),
    [
        ({}, ""),
        ({"state": "COMPLETING"}, ""),
        ({"state": "COMPLETING", "reason": "TimeLimit"}, "Slurm's time limit of 60 min"),
        ({"limit": "1:30:30", "ran": "1:29:36"}, "Slurm's time limit of 90.5 min"),
        ({"state": "PREEMPTED"}, "Slurm calls the job PREEMPTED"),
    ],
)
def test_a_job_that_is_stopped_says_what_slurm_stops_it_for(command, monkeypatch, job, phrase):
    command("squeue", row(**job) + "\n")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert scheduler.why_stopped() == phrase
    monkeypatch.delenv("SLURM_JOB_ID")
    assert scheduler.why_stopped() == ""


SINFO = """\
cpu* up infinite 64000 16 2/0/0/2 (null)
h100 up 2-00:00:00 2000000 192 0/3/1/4 gpu:h100:8(S:0-1)
a100 down 1:00:00 1000000 128 0/1/0/1 gpu:a100:4
"""


def test_partitions_with_their_limits_and_nodes(command):
    command("sinfo", SINFO)
    cpu, h100, a100 = scheduler.partitions()
    assert (cpu.name, cpu.is_default, cpu.is_up, cpu.limit_min) == ("cpu", True, True, None)
    assert (h100.is_default, h100.is_up, h100.limit_min) == (False, False, 2880.0)
    assert h100.nodes == "4 with 192 cores, 2000000 MB and gpu:h100:8(S:0-1)"
    assert not a100.is_up


UNAVAILABLE = "allocation failure: Requested node configuration is not available"


@pytest.mark.parametrize(
    ("error", "partition", "reason"),
    [
        ("sbatch: error: Invalid qos specification", 0, "Invalid qos"),
        ("sbatch: unrecognized option --x", 0, "unrecognized option"),
        (UNAVAILABLE, 0, "there are 2 with 16 cores"),
        (UNAVAILABLE, 1, ""),
        ("allocation failure: Job violates accounting/QOS policy", 0, ""),
        ("sbatch: error: Unable to contact slurm controller", 0, ""),
    ],
)
def test_only_a_refusal_that_will_not_pass_counts(command, error, partition, reason):
    command("sinfo", SINFO)
    asked = command("sbatch", error=error, code=1)
    refused = scheduler.refusal(["--mem=9"], [scheduler.partitions()[partition]])
    assert reason in refused
    assert bool(refused) == bool(reason)
    assert asked.read_text().startswith("--test-only --mem=9 ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("0:30", 0.5), ("30:00", 30.0), ("2:00:00", 120.0), ("1-00:30:00", 1470.0)),
        *(("UNLIMITED", None), ("NOT_SET", None), ("INVALID", None), ("", None), ("x-1:00", None)),
    ],
)
def test_slurms_times(text, expected):
    assert minutes(text) == expected
