"""Faults on a real Slurm: jobs killed in every possible way, and drivers that die while jobs run.

Each workflow has its own driver. The interpreter that starts the processes of a cell counts how
often the cell was really trained. All nodes are this one host, so the training jobs of a workflow
take turns, as the suite requires. What Slurm kills for its memory is cold: the first try of a cell.
"""

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster
from fault_workflow import (
    FIRST_TRIES,
    HANG,
    HOLD,
    LOSE,
    ONE_NODE,
    PART_OF_A_NODE,
    Workflow,
    jobs_of,
    node_of,
    wait_for,
)

from faults import fault
from feedrate.core import scheduler

HUNGRY = (
    f"exec {sys.executable} -c \"import time; held = bytearray(b'x') * (600 << 20); "
    'time.sleep(3600)"'
)
"""A process that takes 600 MiB of its own. Slurm counts shared pages proportionally (PSS), so
libraries may stay below any limit while other tests have loaded them too."""
MORE_THAN_THERE_IS = {"train": {"batch_size": 24, "memory_gib": 1.0}, "loader": {"max_tokens": 500}}


@pytest.fixture(scope="module")
def struck(cluster: Cluster, make_workflow) -> Workflow:
    """A workflow that has run to its end. Each cell meets a different fault while it trains."""
    on_cpu = ONE_NODE | {"slurm_partition": "cpu"}
    workflow = make_workflow(
        "struck",
        {
            "gaudi2": {"rule": ONE_NODE | {"slurm_partition": "gaudi2"}, "start": HOLD},
            "h100": {"rule": ONE_NODE | {"slurm_partition": "h100"}, "start": LOSE, "two": True},
            "cpu": {"rule": on_cpu | {"mem_mb": 400}, "start": HUNGRY},
            "full": {"adapt": {"settings": MORE_THAN_THERE_IS}, "rule": on_cpu},
        },
        FIRST_TRIES.format("cpu"),
    )
    workflow.start()
    faults = {
        ("gaudi2", "workers=0"): lambda job: cluster.down(node_of(job)),
        ("h100", "workers=0"): lambda job: scheduler.cancel([scheduler.find(job)]),
        ("h100", "workers=1"): lambda job: cluster.crash(node_of(job)),
    }
    while faults:
        wait_for(lambda: any(workflow.holds(*cell) for cell in faults), workflow)
        cell = next(cell for cell in faults if workflow.holds(*cell))
        faults.pop(cell)(workflow.job(*cell))
        if cell[0] == "gaudi2":
            wait_for(lambda: workflow.waits("gaudi2"), workflow)
            workflow.release("gaudi2")
    workflow.wait()
    return workflow


def test_a_cancelled_job_runs_again(struck):
    assert struck.outcome("h100", "workers=0")["status"] == fault("scancel", "slurm").status
    assert struck.trainings("h100", "workers=0") == 2


def test_a_job_whose_node_dies_runs_again_elsewhere(struck):
    assert struck.outcome("h100", "workers=1")["status"] == fault("dead node", "slurm").status
    assert struck.trainings("h100", "workers=1") == 2


def test_a_job_that_outlives_its_nodes_daemon_is_waited_for_on_its_host(struck):
    assert struck.outcome("gaudi2")["status"] == "ok"
    assert struck.trainings("gaudi2") == 1


def test_a_job_killed_for_memory_is_a_result_and_not_run_again(struck):
    word = struck.outcome("cpu")
    assert word["status"] == fault("host out of memory", "slurm").status
    assert "for lack of host memory: its limit of 400M on cpu-" in word["cause"]
    assert struck.trainings("cpu") == 1


def test_want_of_device_memory_is_a_result_and_not_run_again(cluster, struck):
    word = struck.outcome("full")
    assert word["status"] == fault("out of memory", "slurm").status, word["cause"]
    assert "can't allocate memory" in word["cause"]
    assert struck.trainings("full") == 1
    assert len(jobs_of(cluster, struck, "train_full")) == 1


def test_after_all_faults_there_is_a_report_with_a_record_of_every_run(struck):
    met = ("scancel", "dead node", "host out of memory", "out of memory")
    report = (struck.root / "report.html").exists()
    assert {fault(name, "slurm").report for name in met} == {report}, struck.output
    records = [path.read_text() for path in struck.root.glob("results/mini/*/records.jsonl")]
    assert sum(text.count("\n") for text in records) == 5
    assert struck.half_done() == []
    wait_for(lambda: not struck.processes(), struck, 60)


@pytest.fixture(scope="module")
def orphaned(make_workflow) -> Workflow:
    """A workflow whose driver is killed while its two cells are on Slurm. One cell ends while there
    is no driver, and a new driver is started while the other one runs."""
    device = {"two": True, "rule": PART_OF_A_NODE, "start": HOLD}
    workflow = make_workflow("orphaned", {"h100": device})
    cells = ["workers=0", "workers=1"]
    workflow.start()
    wait_for(lambda: any(workflow.holds("h100", cell) for cell in cells), workflow)
    first = next(cell for cell in cells if workflow.holds("h100", cell))
    (second,) = set(cells) - {first}
    wait_for(lambda: workflow.waits("h100", first), workflow)
    workflow.kill()
    workflow.release("h100", first)
    wait_for(lambda: list(workflow.cell("h100", first).glob("rep1-*/outcome.json")), workflow)
    wait_for(lambda: workflow.holds("h100", second), workflow)
    workflow.start()
    workflow.wait()
    workflow.cells = first, second
    return workflow


def test_a_driver_started_again_cancels_the_jobs_that_still_run(cluster, orphaned):
    assert "cancelling 1 job that a killed call left on Slurm" in orphaned.output
    states = jobs_of(cluster, orphaned, "train_h100")
    assert sorted(states) == ["CANCELLED", "COMPLETED", "COMPLETED"]


def test_no_result_is_lost_and_only_what_was_cancelled_is_measured_again(orphaned):
    for cell, trainings in zip(orphaned.cells, (1, 2), strict=True):
        assert orphaned.outcome("h100", cell)["status"] == fault("killed driver", "slurm").status
        assert orphaned.trainings("h100", cell) == trainings
        assert orphaned.project.record(f"{cell}~decode=host", "h100")["status"] == "ok"


def test_after_a_killed_driver_all_ends_well(orphaned):
    row = fault("killed driver", "slurm")
    assert orphaned.driver.returncode == row.exit_code, orphaned.output
    assert (orphaned.root / "report.html").exists() is row.report
    assert orphaned.half_done() == []
    wait_for(lambda: not orphaned.processes(), orphaned, 60)


@pytest.fixture
def neighbour(cluster: Cluster, tmp_path: Path) -> Iterator[str]:
    """The ID of a job like those of this suite, but of another project."""
    wanted = ["--parsable", "--chdir", str(tmp_path), "--output", "/dev/null", "--time", "10"]
    named = ["--job-name", f"feedrate_{uuid.uuid4()}", "--comment", "rule_train_a100"]
    command = ["sbatch", *wanted, *named, "--partition=cpu", "--mem=10", "--wrap=sleep 600"]
    sent = subprocess.run(command, capture_output=True, text=True, check=True)
    number = sent.stdout.strip().partition(";")[0]
    assert [job.id for job in scheduler.own_jobs(tmp_path)] == [number]
    yield number
    cluster.cancel(tmp_path)


def test_one_command_ends_what_a_killed_driver_left(make_workflow, neighbour):
    workflow = make_workflow("left", {"h100": {"rule": PART_OF_A_NODE, "start": HANG}})
    workflow.start()
    wait_for(lambda: workflow.trainings("h100"), workflow)
    refused = workflow.project.call("feedrate", "cancel")
    assert refused.returncode == 3
    assert "which cancels its jobs" in refused.stdout
    workflow.kill()
    (left,) = scheduler.own_jobs(workflow.root)
    listed = workflow.project.call("feedrate", "cancel", "--dry-run")
    assert listed.stdout.startswith(f"{left.id}  running  rule_train_h100")
    assert workflow.processes()
    done = workflow.project.call("feedrate", "cancel")
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1] == "Cancelled 1 job."
    root = workflow.root
    wait_for(lambda: not scheduler.own_jobs(root) and not workflow.processes(), workflow, 60)
    assert scheduler.find(neighbour).state != "CANCELLED"
    assert not list(workflow.root.glob("runs/**/outcome.json"))


def test_what_slurm_would_not_run_is_told_and_nothing_is_sent(cluster, make_workflow):
    workflow = make_workflow(
        "refused",
        {
            "h100": {"rule": ONE_NODE | {"slurm_partition": "h200"}},
            "gaudi2": {"rule": ONE_NODE | {"slurm_partition": "cpu", "gres": "'gpu:8'"}},
            "cpu": {"rule": ONE_NODE | {"slurm_partition": "cpu", "gres": "'tpu:4'"}},
            "a100": {"rule": ONE_NODE | {"slurm_partition": "a100", "runtime": 5000}},
        },
    )
    workflow.start()
    assert workflow.wait() != 0
    told = workflow.output
    assert "Nothing was started, because this will fail" in told
    for rule, reason in (
        ("train_h100", "there is no partition h200"),
        ("train_gaudi2", "no node has what it asks for"),
        ("train_cpu", "Invalid generic resource"),
        ("train_a100", "its last try may take 5000 minutes; a100 allows"),
    ):
        (line,) = [line for line in told.splitlines() if f"  {rule}: " in line]
        assert reason in line
    assert "Traceback" not in told
    assert not cluster.jobs(workflow.root)
    assert not list(workflow.root.glob("runs/**/spec.json"))
