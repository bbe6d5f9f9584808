"""Two jobs of one run, as real processes: one trains, and nothing is lost or written twice."""

import json
import shutil
import signal

import msgspec
import pytest
from lock_holders import holder
from training_jobs import Job, in_warm_processes, make_spec, may_take, named, read_events

from feedrate.cli import jobs
from feedrate.core import variables
from feedrate.jobs.run_lock import newest, take_over, try_lock

LONG = {"steps": 100_000, "warmup_steps": 1}


def outcome(out):
    return json.loads((out / "outcome.json").read_text())


def starts(out):
    """How often a training process began, over all that the folder keeps."""
    return [
        e["pid"] for path in out.rglob("events.jsonl") for e in named(read_events(path), "start")
    ]


def snakemake_begins(out):
    """What Snakemake removes of a run when it begins its job."""
    for name in ("outcome.json", "train.log"):
        (out / name).unlink(missing_ok=True)


@pytest.fixture
def arguments(tiny_prepared, tmp_path):
    """The command line of a job that is called in this process."""

    def _make(spec, *options):
        return [
            *("--spec", repr(msgspec.to_builtins(spec)), "--out", str(tmp_path / "out")),
            *("--data", str(tiny_prepared / "manifest.json"), "--source-digest", "abc", *options),
        ]

    return _make


@pytest.fixture(scope="module")
def trained(tiny_prepared, tmp_path_factory):
    """The folder of a job of two steps that ended well."""
    out = tmp_path_factory.mktemp("trained") / "out"
    job = Job(make_spec(steps=2), tiny_prepared, out)
    exit_code, stderr = job.wait()
    assert exit_code == 0, stderr
    return out


@pytest.fixture
def finished(trained, tmp_path):
    """A copy of it in this test's folder."""
    return shutil.copytree(trained, tmp_path / "out", symlinks=True)


def test_a_second_copy_waits_and_takes_the_firsts_result_as_its_own(start):
    spec = make_spec(steps=20)
    first = start(spec)
    first.until_steps(1)
    (rank,) = starts(first.out)
    snakemake_begins(first.out)
    second = start(spec)
    exit_code, stderr = second.wait()
    assert (first.wait()[0], exit_code) == (0, 0)
    assert (
        f"waiting for the result of another job of this run (process {first.process.pid}" in stderr
    )
    assert outcome(first.out)["status"] == "ok"
    assert starts(first.out) == [rank]
    assert (first.out / "train.log").exists()
    assert not list(first.out.glob("attempt-*"))


def test_a_second_copy_takes_over_when_the_first_dies(start):
    first = start(make_spec(**LONG))
    first.until_steps(1)
    second = start(make_spec(**LONG), SLURM_JOB_ID="", **may_take(0.02))
    first.process.kill()
    first.wait()
    assert second.wait()[0] == 0
    assert outcome(second.out)["status"] == "failed"  # it ran, for as long as it may
    assert not list(second.out.glob("attempt-*"))


def test_a_finished_result_is_put_back_without_training(start, finished):
    (rank,) = starts(finished)
    snakemake_begins(finished)
    again = start(make_spec(steps=2), "--attempt", "1")
    exit_code, stderr = again.wait()
    assert exit_code == 0
    assert "another job of this run has finished it: ok" in stderr
    assert starts(again.out) == [rank]
    assert outcome(again.out)["attempt"] == 1
    assert (again.out / "train.log").exists()


def test_a_result_that_was_read_is_made_again(start, finished):
    (finished / "record.json").touch()
    before = starts(finished)
    snakemake_begins(finished)
    again = start(make_spec(steps=2), **{variables.DRIVER_SINCE: "4000000000"})
    assert again.wait()[0] == 0
    assert len(starts(again.out)) == 1
    assert starts(again.out) != before


def test_other_settings_end_with_a_sentence_and_leave_the_first_alone(start, capfd):
    first = start(make_spec(**LONG))
    first.until_steps(1)
    second = start(make_spec(batch_size=2))
    exit_code, stderr = second.wait()
    assert exit_code == 1
    assert stderr.startswith("feedrate train: another job (process ")
    assert "python -m feedrate cancel" in stderr
    assert not (first.out / "outcome.json").exists()
    assert first.process.poll() is None


def test_a_job_that_lost_its_lock_stops_and_writes_nothing(start):
    first = start(make_spec(**LONG))
    below = first.until_steps(1)
    with take_over(first.out, holder(identity=newest(first.out).holder.identity)) as lock:
        while any(first.out.glob("attempt-*")):
            assert first.process.poll() is None
        assert not (first.out / "outcome.json").exists()
        assert below
        first.process.send_signal(signal.SIGTERM)  # it waits for our result now
        exit_code, stderr = first.wait()
    assert exit_code == 143
    assert f"has taken over {first.out}: waiting for its result" in stderr
    assert newest(first.out).number == lock.number


@pytest.fixture
def lost(tmp_path, monkeypatch):
    """The workflow has given up the run of this test."""
    file = tmp_path / "lost.json"
    file.write_text(json.dumps({str(tmp_path / "out/outcome.json"): "the node was lost"}))
    monkeypatch.setenv(variables.LOST, str(file))
    return tmp_path / "out"


def test_a_run_that_was_given_up_is_recorded_and_not_trained(arguments, lost):
    assert jobs.run("train", arguments(make_spec())) == 0
    word = outcome(lost)
    assert (word["status"], word["infrastructure"]) == ("failed", True)
    assert word["cause"] == "the node was lost"
    assert (lost / "spec.json").exists()
    assert starts(lost) == []
    assert newest(lost).is_released


def test_of_a_lost_run_a_result_that_came_after_all_counts(arguments, finished, lost):
    snakemake_begins(finished)
    assert jobs.run("train", arguments(in_warm_processes(make_spec(steps=2)))) == 0
    assert outcome(lost)["status"] == "ok"


def test_a_living_job_of_a_lost_run_loses_its_lock(arguments, lost):
    lost.mkdir()
    living = try_lock(lost, holder(), 0)
    assert jobs.run("train", arguments(make_spec())) == 0
    assert outcome(lost)["cause"] == "the node was lost"
    assert newest(lost).number > living.number


def test_of_a_lost_run_slurms_word_counts_before_the_drivers(arguments, lost, monkeypatch):
    """What the tries of the driver that gave up left: the last was killed for lack of memory."""
    from feedrate.core import slurm
    from feedrate.jobs.supervisor import identity, train

    given = jobs.parser("train", train).parse_args(arguments(make_spec()))
    made = identity(given.spec, given.data, given.source_digest, given.attempt)
    lost.mkdir()
    try_lock(lost, holder(identity=made, job="12", since="1"), 0)
    monkeypatch.setenv(variables.DRIVER_SINCE, "2")
    monkeypatch.setattr(slurm, "find", lambda job: slurm.Job(id=job, state="OUT_OF_MEMORY"))
    assert jobs.run("train", arguments(make_spec())) == 0
    assert outcome(lost)["status"] == "out_of_memory"
    assert outcome(lost)["infrastructure"] is False


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[]", "is not a JSON object of causes"),
        ("{", "is not a JSON object of causes"),
        ('{"elsewhere/outcome.json": "x"}', "gives no cause for "),
    ],
)
def test_a_list_of_lost_runs_without_this_one_trains_nothing(arguments, lost, capsys, text, told):
    lost.parent.joinpath("lost.json").write_text(text)
    assert jobs.run("train", arguments(make_spec())) == 1
    stderr = capsys.readouterr().err
    assert told in stderr
    assert stderr.count("\n") == 1
    assert not lost.exists()
