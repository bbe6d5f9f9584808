"""Requests that Slurm would never run appear before the first job. Its commands are replaced."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from feedrate.core import slurm as client
from feedrate.flow import configuration, preflight

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
    return preflight.problems(options, project, [device])


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


def test_the_registry_says_what_the_profile_does_not(slurm, project):
    assert problems(project) == []
    assert "--gres=gpu:8" in slurm.asked.read_text()


def test_gpus_of_the_whole_job_may_replace_the_gres(slurm, project):
    assert problems(project, "gres=''", "gpu=8", "gpu_model=h100") == []
    asked = slurm.asked.read_text()
    assert "--gpus=h100:8" in asked
    assert "--gres" not in asked


@pytest.mark.parametrize(
    ("resource", "reason"),
    [
        ("slurm_partition=h900", "there is no partition h900; known: cpu, h100"),
        ("gres=gpu:HL-225:8", "gres 'gpu:HL-225:8' is not allowed"),
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
    with pytest.raises(client.SlurmError):
        problems(project)
