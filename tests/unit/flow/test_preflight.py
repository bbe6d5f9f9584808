"""Errors that are certain appear before the first job: from Slurm, whose commands are replaced, and
from the checks of the machine."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from feedrate.core import scheduler as client
from feedrate.core.errors import ExpectedError
from feedrate.devices.doctor import Finding
from feedrate.flow import configuration, driver
from feedrate.flow import resources as requests
from tiny_spec import tiny_spec

ROOT = Path(__file__).resolve().parents[3]
UNAVAILABLE = "allocation failure: Requested node configuration is not available"


@pytest.fixture(scope="module")
def project():
    """The configured project, on the device of the Slurm profile."""
    layers = configuration.read_layers([], ["devices=[h100]"])
    return configuration.load(ROOT, layers)


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A Slurm that takes every job, with a partition of 2 days; `answer` has it say something else.
    What it was asked is in `asked`."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def answer(name, text="", error="", code=0):
        (tmp_path / f"{name}.err").write_text(error)
        script = tmp_path / name
        script.write_text(
            f'#!/bin/sh\necho "{name} $@" >> {tmp_path}/asked\necho "{text}"\n'
            f"cat {tmp_path}/{name}.err >&2\nexit {code}\n"
        )
        script.chmod(0o755)

    answer("sbatch")
    answer(
        "sinfo",
        "cpu* up infinite 64000 16 0/2/0/2 (null)\n"
        "h100 up 2-00:00:00 2000000 192 4/0/0/4 gpu:h100:8(S:0-1)",
    )
    return SimpleNamespace(answer=answer, asked=tmp_path / "asked")


def problems(project, *resources, device="h100", retries=2, executor="slurm"):
    """The problems of a device's training jobs with resources of the command line."""
    own = [f"train_h100:{one}" for one in ("slurm_partition=h100", *resources)]
    words = ["--executor", executor, "--retries", str(retries), "--set-resources", *own]
    options = configuration.snakemake_options(words)
    return requests.problems(options, project, [device])


def test_slurm_is_asked_with_the_words_of_the_executor(slurm, project):
    requests = ("gres=gpu:4", "cpus_per_task=192", "mem_mb=4000", "constraint=fast", "nodes=2")
    assert problems(project, *requests, "slurm_extra='--exclusive --x=1'", "runtime=30") == []
    asked = slurm.asked.read_text().splitlines()[-1]
    assert asked.startswith("sbatch --test-only ")
    for word in (
        *("--partition=h100", "--gres=gpu:4", "--cpus-per-task=192", "--mem=4000"),
        *("--constraint=fast", "--nodes=2", "--exclusive", "--x=1", "--time=30"),
    ):
        assert word in asked.split()


def test_the_registry_says_what_the_profile_does_not_and_gpus_may_replace_its_gres(slurm, project):
    assert problems(project) == []
    assert problems(project, "gres=''", "gpu=8", "gpu_model=h100") == []
    first, second = (line for line in slurm.asked.read_text().splitlines() if "sbatch" in line)
    assert "--gres=gpu:8" in first
    assert "--gpus=h100:8" in second
    assert "--gres" not in second


@pytest.mark.parametrize(
    ("resource", "reason"),
    [
        ("slurm_partition=h900", "there is no partition h900; known: cpu, h100"),
        ("gres=gpu:HL-225:8", "gres 'gpu:HL-225:8' is not allowed"),
        ("slurm_extra='--x=\\'a'", 'slurm_extra "--x=\'a" is not allowed: no closing quotation'),
        ("runtime=1000 * attempt", "its last try may take 3000 minutes; h100 allows 2880"),
    ],
)
def test_what_sbatch_cannot_tell_is_a_problem_of_its_rule(slurm, project, resource, reason):
    (problem,) = problems(project, resource)
    assert problem == f"train_h100: {reason}" or problem.startswith(f"train_h100: {reason}; ")


def test_what_sbatch_refuses_is_a_problem(slurm, project):
    slurm.answer("sbatch", error=UNAVAILABLE, code=1)
    (problem,) = problems(project)
    assert problem.startswith("train_h100: no node has what it asks for")
    assert "there are 4 with 192 cores" in problem


def test_another_executor_is_not_asked_and_a_controller_may_not_answer(slurm, project, monkeypatch):
    assert problems(project, executor="local") == []
    assert not slurm.asked.exists()
    monkeypatch.setattr(client, "ANSWER_S", 0.2)
    for name in ("sbatch", "sinfo"):
        (slurm.asked.parent / name).write_text("#!/bin/sh\nexec sleep 30\n")
    with pytest.raises(client.SchedulerError):
        problems(project)


# The machine, before the first job


@pytest.fixture
def examined(monkeypatch):
    """What `examine` finds, and the runs that it was asked about."""
    seen = SimpleNamespace(findings=[], specs=None, runs_here=None)

    def examine(_project, specs, *, runs_here):
        seen.specs, seen.runs_here = list(specs), runs_here
        return seen.findings

    monkeypatch.setattr(driver, "examine", examine)
    return seen


HERE = SimpleNamespace(is_local=True, executor="local")


def test_a_call_that_trains_nothing_needs_no_device(examined, project):
    driver.check(project, [], HERE)
    assert examined.specs is None


def test_all_that_is_bound_to_fail_is_told_at_once_with_its_remedy(examined, project, capsys):
    examined.findings = [
        Finding("will fail", "h100: torchao", "it is missing", "install it"),
        Finding("will fail", "disk", "it is full", "free some space"),
        Finding("will be slow", "h100: clocks", "the limit is low", "raise it"),
        Finding("unknown", "h100: Python", "it did not answer", "start it"),
        Finding("fine", "Python", "3.12"),
    ]
    with pytest.raises(ExpectedError) as told:
        driver.check(project, [tiny_spec(device="h100")], HERE)
    assert examined.runs_here is True
    first, *lines = str(told.value).splitlines()
    assert first.startswith("Nothing was started")
    assert lines == [
        "  h100: torchao: it is missing: install it",
        "  disk: it is full: free some space",
    ]
    assert capsys.readouterr().err == (
        "feedrate: will be slow: h100: clocks: the limit is low: raise it\n"
    )


def test_without_slurm_the_profiles_of_one_machine_are_named(project, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ExpectedError, match=r"no sbatch here: .*gaudi-node, gpu-node, local"):
        driver.check(project, [tiny_spec(device="h100")], SimpleNamespace(is_local=False))
