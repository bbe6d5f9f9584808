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
    """A Slurm that takes every job, with partitions of 2 days; `answer` has it say something
    else. What it was asked is in `asked`."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(driver, "mend_executor", lambda _: None)

    def answer(name, text="", error="", code=0):
        (tmp_path / f"{name}.err").write_text(error)
        script = tmp_path / name
        script.write_text(
            f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\necho "{text}"\n'
            f"cat {tmp_path}/{name}.err >&2\nexit {code}\n"
        )
        script.chmod(0o755)

    answer("sbatch")
    answer("sinfo", "2-00:00:00")
    return SimpleNamespace(answer=answer, asked=tmp_path / "asked")


def test_what_slurm_takes_passes_and_is_only_tried(slurm):
    driver.check(workflow(job(gres="gpu:8", slurm_extra="--exclusive")))
    (_, first) = slurm.asked.read_text().splitlines()
    for part in (
        "--test-only",
        "--partition=h100",
        "--time=60",
        "--mem=4000",
        "--gres=gpu:8",
        "--exclusive",
    ):
        assert part in first


def test_without_slurm_the_profiles_of_one_machine_are_named(tmp_path, monkeypatch):
    settings = ExecutorSettings(no_requeue=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WorkflowError, match=r"no sbatch here: .*gaudi-node, gpu-node, local"):
        driver.check(workflow(job(), settings=settings))


def test_jobs_on_this_host_are_not_slurms(slurm):
    driver.check(workflow(job(local=True)))
    assert not slurm.asked.exists()


def test_all_that_slurm_refuses_is_told_at_once_by_rule(slurm):
    error = "sbatch: error: invalid partition: h100\nsbatch: error: submission failed: Invalid\n"
    slurm.answer("sbatch", error=error, code=1)
    with pytest.raises(WorkflowError) as told:
        driver.check(workflow(job(), job("train_a100", gres="gpu:4")))
    first, a100, h100 = str(told.value).splitlines()
    assert "Nothing was started; change it under `set-resources`" in first
    reason = "invalid partition: h100; submission failed: Invalid (asked for: "
    assert h100.startswith(f"  train_h100: {reason}--partition=h100 --time=60")
    assert a100.startswith(f"  train_a100: {reason}")
    assert "--gres=gpu:4" in a100


def test_nodes_that_are_down_for_now_are_waited_for_with_a_word(slurm, caplog):
    """A test is refused, a job that begins later is not, and is taken back."""
    slurm.answer("sbatch")
    (slurm.asked.parent / "sbatch").write_text(
        f'#!/bin/sh\necho "$@" >> {slurm.asked}\ncase "$*" in *--test-only*)\n'
        "echo 'allocation failure: Requested node configuration is not available' >&2\nexit 1\n"
        "esac\necho '7;cluster'\n"
    )
    slurm.answer("scancel")
    with caplog.at_level(logging.WARNING, logger.name):
        driver.check(workflow(job(), job("train_b", local=True)))
    _, tested, sent, cancelled = slurm.asked.read_text().splitlines()
    assert "--test-only" in tested
    assert driver.LATER in sent
    assert cancelled == "7"
    (record,) = caplog.records
    assert "No node can take it now; jobs will wait for: --partition=h100" in record.getMessage()


def test_a_time_limit_that_would_wait_for_ever_is_told_with_its_try(slurm):
    with pytest.raises(WorkflowError, match=r"limit is 4000 minutes in try 2, .* h100 allows 2880"):
        driver.check(workflow(job(runtimes=(2000, 4000, 4000))))
    driver.check(workflow(job(runtimes=(2000, 4000, 4000)), retries=0))


@pytest.mark.parametrize("text", ["infinite", "2-00:00:00\ninfinite", ""])
def test_a_partition_without_a_limit_takes_any_time(slurm, text):
    slurm.answer("sinfo", text)
    driver.check(workflow(job(runtimes=(99999, 99999, 99999))))


def test_a_controller_that_does_not_answer_holds_nobody_up(slurm, monkeypatch):
    monkeypatch.setattr(client, "ANSWER_S", 0.2)
    for name in ("sbatch", "sinfo"):
        (slurm.asked.parent / name).write_text("#!/bin/sh\nexec sleep 30\n")
    driver.check(workflow(job()))


def test_a_gres_that_the_executor_rejects_is_told_with_its_rule_and_keys(slurm):
    told = r"`set-resources`(?s:.*)train_gaudi2: gres 'gpu:HL-225:8' is not allowed"
    with pytest.raises(WorkflowError, match=told):
        driver.check(workflow(job("train_gaudi2", gres="gpu:HL-225:8")))
    typed = "--exclusive --gpus-per-node=HL-225:8"
    driver.check(workflow(job("train_gaudi2", gres="", slurm_extra=typed)))
    first = slurm.asked.read_text().splitlines()[-1]
    assert typed in first
    assert "--gres" not in first


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


def run_of(cell):
    return tiny_spec(study="s", device="cpu", cell=cell)


def plan_of(*cells):
    return SimpleNamespace(runs={cell: run_of(cell) for cell in cells})


def test_only_runs_that_this_call_trains_are_examined(examined):
    workflow = planned("results/s/cpu/b/rep1/outcome.json", "results/other")
    driver.check_machine(workflow, None, plan_of("a", "b"), here=True)
    assert [spec.cell for spec in examined.specs] == ["b"]
    assert examined.here is True


@pytest.mark.parametrize("rule", ["fetch_dataset", "parse_logs"])
def test_a_call_that_trains_nothing_needs_no_device(examined, rule):
    workflow = planned("results/s/cpu/b/rep1/outcome.json", rule=rule)
    driver.check_machine(workflow, None, plan_of("b"), here=True)
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
        driver.check_machine(workflow, None, plan_of("b"), here=True)
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
    driver.check_machine(workflow, None, plan_of("b"), here=True)
    assert examined.specs is None
