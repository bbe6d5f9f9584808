"""Which runs count as lost, and what the second Snakemake is asked to do."""

import json
import logging
from types import SimpleNamespace

import pytest
from snakemake.logging import logger

from feedrate.core import variables
from feedrate.flow import lost

OUTCOME = "results/s/h100/workers=0/rep1/outcome.json"
REFUSED = "SLURM sbatch failed. The error message was 'sbatch: error: no partition'.\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(variables.LOST, raising=False)
    return tmp_path


def job(rule="train_h100", output=OUTCOME):
    return SimpleNamespace(rule=SimpleNamespace(name=rule), output=[output], is_group=lambda: False)


def group(*jobs):
    return SimpleNamespace(jobs=jobs, is_group=lambda: True)


def scheduler(*failed, running=(), ready=()):
    return SimpleNamespace(failed=set_of(failed), running=set_of(running), open_jobs=list(ready))


def set_of(values):
    return list(values)


def test_a_training_job_without_an_outcome_is_lost():
    assert lost.find_lost(scheduler(job())) == {OUTCOME}


def test_jobs_in_groups_count_too():
    parse = job("parse_logs", "record.json")
    assert lost.find_lost(scheduler(group(job(), job(output="b")))) == {OUTCOME, "b"}
    assert lost.find_lost(scheduler(group(job(), parse))) == set()


@pytest.mark.parametrize(
    "state",
    [
        None,
        scheduler(),
        scheduler(job(), job("preprocess_dataset", "manifest.json")),
        scheduler(job("plot_answer", "answer.svg")),
        scheduler(job(), running=[job()]),
        scheduler(job(), ready=[job()]),
    ],
    ids=["no plan", "none failed", "data failed too", "only a figure", "stopped", "jobs left"],
)
def test_otherwise_nothing_is(state):
    assert lost.find_lost(state) == set()


def test_a_run_with_an_outcome_is_not_lost(folder):
    path = folder / OUTCOME
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    assert lost.find_lost(scheduler(job())) == set()


def error(message, output=OUTCOME):
    record = logging.LogRecord("snakemake", logging.ERROR, "", 0, "Error in rule", None, None)
    record.__dict__.update(event="job_error", output=[output], rule_msg=message, log=[])
    return record


def test_the_cause_of_the_last_try_counts():
    causes = lost.Causes()
    causes.emit(error("SLURM-job '5' failed, SLURM status is: 'TIMEOUT'. "))
    causes.emit(error("SLURM-job '9' failed, SLURM status is: 'NODE_FAIL'. "))
    causes.emit(logging.LogRecord("snakemake", logging.ERROR, "", 0, "other", None, None))
    assert causes.of == {OUTCOME: f"Slurm job 9 ended as NODE_FAIL: {lost.MEANINGS['NODE_FAIL']}"}
    assert causes.refused == set()


class Choice:
    def item_to_choice(self):
        return "conda"


def workflow(failed):
    return SimpleNamespace(
        scheduler=failed,
        dag_settings=SimpleNamespace(
            targets={"mini"},
            until=frozenset(),
            omit_from=frozenset(),
        ),
        deployment_settings=SimpleNamespace(deployment_method={Choice()}),
        main_snakefile="/p/Snakefile",
        basedir="/p",
    )


@pytest.fixture
def calls(monkeypatch):
    made = []

    def run(command, **options):
        made.append((command, options))
        return SimpleNamespace(stdout="Using profile x\n1 of 2 runs did not end well\n")

    monkeypatch.setattr(lost.subprocess, "run", run)
    return made


def test_the_rest_is_made_here_with_the_same_configuration(folder, calls, caplog):
    causes = lost.Causes()
    causes.emit(error("SLURM-job '9' failed, SLURM status is: 'NODE_FAIL'. "))
    with caplog.at_level(logging.INFO, logger.name):
        lost.finish(workflow(scheduler(job(), job(output="b"))), {"devices": ["h100"]}, causes)
    ((command, options),) = calls
    text = " ".join(command)
    for part in (
        "--profile /p/profiles/local",
        "--executor local",
        "--retries 0 --nolock",
        "--rerun-triggers mtime",
        "--software-deployment-method conda",
        "-- mini",
    ):
        assert part in text
    assert "--until" not in text
    told = json.loads((folder / options["env"][variables.LOST]).read_text())
    assert told == {OUTCOME: causes.of[OUTCOME], "b": lost.UNKNOWN}
    config = command[command.index("--configfile") + 1]
    assert json.loads((folder / config).read_text()) == {"devices": ["h100"]}
    warning, failure = [record.getMessage() for record in caplog.records]
    assert warning.startswith("2 runs ")
    assert failure == "1 of 2 runs did not end well", "without the line about the profile"


def test_a_wrong_partition_and_nothing_measured_is_no_report(folder, calls):
    causes = lost.Causes()
    causes.emit(error(REFUSED))
    lost.finish(workflow(scheduler(job())), {}, causes)
    assert calls == []
    other = folder / "results/s/cpu/workers=0/rep1/outcome.json"
    other.parent.mkdir(parents=True)
    other.write_text("{}")
    lost.finish(workflow(scheduler(job())), {}, causes)
    assert len(calls) == 1


def test_the_second_snakemake_starts_no_third(calls, monkeypatch):
    monkeypatch.setenv(variables.LOST, "lost.json")
    lost.finish(workflow(scheduler(job())), {}, lost.Causes())
    assert calls == []
