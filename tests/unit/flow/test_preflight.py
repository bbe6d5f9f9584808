"""Errors that are certain appear before the first job: from Slurm, whose commands are replaced, and
from the checks of the machine."""

import logging
from types import SimpleNamespace

import pytest
from snakemake.exceptions import WorkflowError
from snakemake.logging import logger
from snakemake_executor_plugin_slurm import ExecutorSettings

from feedrate.core import slurm as client
from feedrate.core import variables
from feedrate.devices.doctor import Finding
from feedrate.flow import driver
from tiny_spec import tiny_spec


class Resources(dict):
    """A job's resources, by key and by name."""

    __getattr__ = dict.get


def job(rule="train_h100", *, local=False, runtimes=(60, 120, 120), **resources):
    """A job that asks for a runtime by try."""

    def expand(_wildcards, _input, attempt, _skip):
        return Resources(resources, runtime=runtimes[attempt - 1])

    asked = Resources({"slurm_partition": "h100", "mem_mb": 4000, **resources})
    return SimpleNamespace(
        rule=SimpleNamespace(name=rule, expand_resources=expand),
        resources=Resources(asked, runtime=runtimes[0]),
        is_local=local,
        wildcards_dict={},
        input=[],
        threads=4,
    )


def workflow(*jobs, settings=None, retries=2):
    return SimpleNamespace(
        executor_settings=settings or ExecutorSettings(no_requeue=True),
        execution_settings=SimpleNamespace(retries=retries),
        dag=SimpleNamespace(needrun_jobs=lambda: iter(jobs)),
    )


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A Slurm that takes every job, with a partition of 2 days; `answer` has it say something else.
    What it was asked is in `asked`."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(driver, "mend_executor", lambda _: None)

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
        "sinfo", "cpu* infinite 64000 16 2 (null)\nh100 2-00:00:00 2000000 192 4 gpu:h100:8(S:0-1)"
    )
    return SimpleNamespace(answer=answer, asked=tmp_path / "asked")


def refusal(*jobs, retries=2):
    with pytest.raises(WorkflowError) as caught:
        driver.check(workflow(*jobs, retries=retries))
    return str(caught.value)


@pytest.mark.parametrize(
    "resources",
    [
        {"gres": "gpu:8", "cpus_per_task": 192, "nodes": 4, "slurm_extra": "--exclusive"},
        {"gres": "gpu:h100:4"},
        {"gres": "", "gpu": 8, "gpu_model": "h100"},
        {"gres": "", "slurm_extra": "--exclusive --gpus-per-node=HL-225:8"},
        {"slurm_partition": None, "runtimes": (99999, 99999, 99999)},
    ],
)
def test_what_the_nodes_have_passes(slurm, resources):
    driver.check(workflow(job(**resources)))
    assert "--test-only" in slurm.asked.read_text()


@pytest.mark.parametrize(
    ("resources", "reason"),
    [
        ({"slurm_partition": "h900"}, "there is no partition h900; known: cpu, h100"),
        ({"gres": "gpu:9"}, "gres gpu:9; h100 has: 4 with 192, 2000000 MB and gpu:h100:8"),
        ({"gres": "gpu:a100:8"}, "gres gpu:a100:8"),
        ({"gres": "hpu:8"}, "gres hpu:8"),
        ({"gpu": 16}, "gres gpu:16"),
        ({"slurm_partition": "cpu", "gres": "gpu:1"}, "cpu has: 2 with 16, 64000 MB and (null)"),
        ({"mem_mb": 3_000_000}, "3000000 MB"),
        ({"cpus_per_task": 256}, "256 cores"),
        ({"nodes": 5}, "no 5 nodes"),
        ({"runtimes": (2000, 4000, 4000)}, "its last try may take 4000 minutes; h100 allows 2880"),
        ({"gres": "gpu:HL-225:8"}, "gres 'gpu:HL-225:8' is not allowed"),
    ],
)
def test_what_no_node_has_is_a_problem_of_its_rule(slurm, resources, reason):
    message = refusal(job(), job("train_b", local=True), job("train_a", **resources))
    _, *lines = message.splitlines()
    assert [line.startswith("  train_a: ") for line in lines] == [True]
    assert reason in lines[0]


def test_an_account_that_slurm_refuses_is_a_problem_and_nodes_that_are_down_are_not(slurm):
    slurm.answer("sbatch", error="allocation failure: Invalid account or partition\n", code=1)
    assert "train_h100: allocation failure: Invalid account" in refusal(job(slurm_account="me"))
    assert "--partition=h100 --account=me" in slurm.asked.read_text()
    slurm.answer("sbatch", error="Requested node configuration is not available\n", code=1)
    driver.check(workflow(job()))


def test_without_slurm_the_profiles_of_one_machine_are_named(tmp_path, monkeypatch):
    settings = ExecutorSettings(no_requeue=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WorkflowError, match=r"no sbatch here: .*gaudi-node, gpu-node, local"):
        driver.check(workflow(job(), settings=settings))


def test_jobs_of_this_host_and_other_executors_are_not_slurms(slurm):
    driver.check(workflow(job(local=True)))
    driver.check(workflow(job(), settings=SimpleNamespace()))
    assert not slurm.asked.exists()


def test_a_controller_that_does_not_answer_holds_nobody_up(slurm, monkeypatch):
    monkeypatch.setattr(client, "ANSWER_S", 0.2)
    for name in ("sbatch", "sinfo"):
        (slurm.asked.parent / name).write_text("#!/bin/sh\nexec sleep 30\n")
    driver.check(workflow(job()))


# The machine, before the first job


def planned(*outputs, rule="train_cpu"):
    jobs = [SimpleNamespace(rule=SimpleNamespace(name=rule), output=[name]) for name in outputs]
    jobs.append(SimpleNamespace(rule=SimpleNamespace(name="all"), output=[]))
    return SimpleNamespace(dag=SimpleNamespace(needrun_jobs=lambda: iter(jobs)))


@pytest.fixture
def examined(monkeypatch):
    """What `examine` finds, and the runs that it was asked about."""
    seen = SimpleNamespace(found=[], specs=None, here=None)

    def examine(_project, specs, *, here):
        seen.specs, seen.here = list(specs), here
        return seen.found

    monkeypatch.setattr(driver, "examine", examine)
    monkeypatch.delenv(variables.LOST, raising=False)
    return seen


PROJECT = SimpleNamespace(config=SimpleNamespace(push_to_hub=""))


def run_of(cell):
    return tiny_spec(study="s", device="cpu", cell=cell)


def plan_of(*cells):
    return SimpleNamespace(runs={cell: run_of(cell) for cell in cells})


def test_only_runs_that_this_call_trains_are_examined(examined):
    workflow = planned("results/s/cpu/b/rep1/outcome.json", "results/other")
    driver.check_machine(workflow, PROJECT, plan_of("a", "b"), here=True)
    assert [spec.cell for spec in examined.specs] == ["b"]
    assert examined.here is True


@pytest.mark.parametrize("rule", ["fetch_dataset", "parse_logs"])
def test_a_call_that_trains_nothing_needs_no_device(examined, rule):
    workflow = planned("results/s/cpu/b/rep1/outcome.json", rule=rule)
    driver.check_machine(workflow, PROJECT, plan_of("b"), here=True)
    assert examined.specs is None


def test_all_that_is_bound_to_fail_is_told_at_once_with_its_remedy(examined, caplog):
    examined.found = [
        Finding("will fail", "h100: torchao", "it is missing", "install it"),
        Finding("will fail", "disk", "it is full", "free some space"),
        Finding("will be slow", "h100: power", "the limit is low", "raise it"),
        Finding("unknown", "h100: energy", "it cannot be read", "install nvidia-ml-py"),
        Finding("fine", "Python", "3.12"),
    ]
    workflow = planned("results/s/cpu/b/rep1/outcome.json")
    with (
        pytest.raises(WorkflowError) as told,
        caplog.at_level(logging.WARNING, logger.name),
    ):
        driver.check_machine(workflow, PROJECT, plan_of("b"), here=True)
    first, *lines = str(told.value).splitlines()
    assert first.startswith("Nothing was started")
    assert lines == [
        "  h100: torchao: it is missing: install it",
        "  disk: it is full: free some space",
    ]
    assert ["the limit is low" in record.getMessage() for record in caplog.records] == [True]


def test_runs_that_are_given_up_need_no_device(examined, monkeypatch):
    monkeypatch.setenv(variables.LOST, "file.json")
    workflow = planned("results/s/cpu/b/rep1/outcome.json")
    driver.check_machine(workflow, PROJECT, plan_of("b"), here=True)
    assert examined.specs is None
