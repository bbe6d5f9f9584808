"""Faults on a real Slurm: jobs killed in every way there is, and drivers that die under them.

Three workflows, each with a driver of its own. How often a cell was really trained is counted by
the interpreter that its processes are started with. All nodes are this one host, so training jobs
take turns, as the suite has them do.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml
from cluster import Cluster
from mini_project import MINI, Project, make_project

from feedrate.cluster import slurm
from feedrate.train.claim import newest

PROFILE = {
    "executor": "slurm",
    "jobs": 16,
    "local-cores": 2,
    "retries": 2,
    "default-resources": {"slurm_partition": "cpu", "mem_mb": 4000, "runtime": 20},
    "slurm-status-command": "squeue",
    "slurm-status-attempts": 100,
    "slurm-no-requeue": True,
    "slurm-jobname-prefix": slurm.PREFIX,
    "slurm-init-seconds-before-status-checks": 5,
    "keep-going": True,
    "rerun-incomplete": True,
    "latency-wait": 20,
    "scheduler": "greedy",
    "logger": "feedrate",
}
ONE_NODE = {"cpus_per_task": 4, "mem_mb": 4000, "slurm_extra": "'--exclusive'"}
RUN = "results/mini/{device}/{cell},decode=host/rep1"


@dataclass
class Workflow:
    """A project whose jobs go to the cluster, and its driver."""

    project: Project
    driver: subprocess.Popen | None = None

    def start(self) -> None:
        """Start `python -m feedrate run`; what it prints is kept in a file."""
        with self._output.open("a") as output:
            self.driver = subprocess.Popen(
                [sys.executable, "-m", "feedrate", "run", "--profile", "profiles/faults"],
                cwd=self.project.root,
                env=self.project.env() | {"TMPDIR": str(self.project.root.parent)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def run(self, device: str, cell: str = "workers=0") -> Path:
        return self.project.root / RUN.format(device=device, cell=cell)

    def outcome(self, device: str, cell: str = "workers=0") -> dict:
        return json.loads((self.run(device, cell) / "outcome.json").read_text())

    def trainings(self, device: str, cell: str = "workers=0") -> int:
        """How often the processes of a run were started."""
        log = self.project.root / "trainings"
        lines = log.read_text().splitlines() if log.exists() else []
        return sum(RUN.format(device=device, cell=cell) in line for line in lines)

    def trains(self, device: str, cell: str = "workers=0") -> bool:
        """Whether an attempt has made a step."""
        found = self.run(device, cell).glob("attempt-*/events.jsonl")
        return any('"step"' in events.read_text() for events in found)

    def job(self, device: str, cell: str = "workers=0") -> str:
        """Slurm's number of the job that holds the claim."""
        return newest(self.run(device, cell)).holder.job

    def kill(self) -> None:
        """kill -9 of the driver and of what started it."""
        family = [psutil.Process(self.driver.pid)]
        family += family[0].children(recursive=True)
        for process in family:
            process.kill()
        self.driver.wait()

    @property
    def output(self) -> str:
        return self._output.read_text()

    @property
    def _output(self) -> Path:
        return self.project.root / "output"


def wait_for(
    condition, timeout_s: float = 120.0, what: str = "it", workflow: Workflow | None = None
):
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"{what}: {workflow and workflow.output}"
        time.sleep(0.1)


def node_of(job: str) -> str:
    return slurm.find(job).nodes


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose dataset is there, made without the cluster."""
    project = make_project(tmp_path_factory.mktemp("prepared"))
    made = project.call("snakemake", "--profile", "profiles/local", "--until", "preprocess_dataset")
    assert made.returncode == 0, made.stdout
    return project


@pytest.fixture(scope="module")
def make_workflow(cluster: Cluster, prepared: Project, tmp_path_factory):
    """Make a project of its own: devices by name, with levels, steps and what its rule asks for."""
    made: list[Workflow] = []

    def _make(name: str, devices: dict[str, dict], *, hang: bool = False) -> Workflow:
        root = tmp_path_factory.mktemp(name) / "project"
        subprocess.run(["cp", "-a", prepared.root, root], check=True)
        project = Project(root)
        python = root / "python.sh"
        start = "exec sleep 3600" if hang else f'exec {sys.executable} "$@"'
        python.write_text(
            '#!/bin/sh\ncase "$*" in *feedrate.train.worker*)\n'
            f'echo "$*" >> {root}/trainings; {start};;\nesac\nexec {sys.executable} "$@"\n'
        )
        python.chmod(0o755)
        rules = {}
        for device, entry in devices.items():
            capabilities = ["fp32", "two"] if entry.get("cells") == 2 else ["fp32"]
            project.device(
                device,
                **{"label": device, "kind": "cpu", "count": 1, "capabilities": capabilities},
                **{"software": {"python": str(python)}, "job": None, "peaks": []},
                **{"model_pattern": None, "launcher": None, "memory_gib": None},
            )
            rules[f"train_{device}"] = ONE_NODE | {"slurm_partition": device} | entry["rule"]
        project.config(devices=list(devices))
        workers = {"sets": "loader.workers", "levels": [0, 1], "requires": {"1": "two"}}
        project.study(
            factors=MINI["factors"] | {"workers": workers},
            adapt={d: {"protocol": {"steps": e["steps"]}} for d, e in devices.items()},
        )
        (root / "profiles/faults").mkdir()
        (root / "profiles/faults/config.yaml").write_text(
            yaml.safe_dump(PROFILE | {"set-resources": rules})
        )
        made.append(Workflow(project))
        return made[-1]

    yield _make
    for workflow in made:
        if workflow.driver and workflow.driver.poll() is None:
            workflow.kill()
        cluster.cancel(workflow.project.root)


@pytest.fixture(scope="module")
def hanging(make_workflow) -> Workflow:
    """A job that never ends by itself; its limit is 1 min, then 2. It runs beside all others."""
    workflow = make_workflow(
        "hanging", {"a100": {"steps": 6, "rule": {"runtime": "min(attempt, 2)"}}}, hang=True
    )
    workflow.start()
    return workflow


@pytest.fixture(scope="module")
def struck(cluster: Cluster, make_workflow, hanging: Workflow) -> Iterator[Workflow]:
    """A workflow to its end, each of whose cells is hit by another fault while it trains."""
    workflow = make_workflow(
        "struck",
        {
            "gaudi2": {"steps": 250, "rule": {}},
            "h100": {"steps": 30, "cells": 2, "rule": {}},
            "cpu": {"steps": 30, "rule": {"mem_mb": 300}},
        },
    )
    workflow.start()
    faults = {
        ("gaudi2", "workers=0"): lambda job: cluster.down(node_of(job)),
        ("h100", "workers=0"): lambda job: slurm.cancel([slurm.find(job)]),
        ("h100", "workers=1"): lambda job: cluster.crash(node_of(job)),
    }
    while faults and workflow.driver.poll() is None:
        for cell in [cell for cell in faults if workflow.trains(*cell)]:
            faults.pop(cell)(workflow.job(*cell))
        time.sleep(0.05)
    assert not faults, workflow.output
    workflow.driver.wait(300)
    yield workflow
    cluster.start()  # nodes that are down come up again


def test_a_cancelled_job_runs_again(struck):
    assert struck.outcome("h100", "workers=0")["status"] == "ok"
    assert struck.trainings("h100", "workers=0") == 2


def test_a_job_whose_node_dies_runs_again_elsewhere(struck):
    assert struck.outcome("h100", "workers=1")["status"] == "ok"
    assert struck.trainings("h100", "workers=1") == 2


def test_a_job_that_outlives_its_nodes_daemon_is_waited_for_and_not_run_twice(struck):
    assert struck.outcome("gaudi2")["status"] == "ok"
    assert struck.trainings("gaudi2") == 1


def test_a_job_killed_for_memory_is_a_result_and_not_run_again(struck):
    word = struck.outcome("cpu")
    assert word["status"] == "out_of_memory"
    assert "for want of host memory: its limit of 300M on cpu-" in word["cause"]
    assert struck.trainings("cpu") == 1


def test_after_all_faults_there_is_a_report_with_a_record_of_every_run(struck):
    assert (struck.project.root / "report.html").exists(), struck.output
    records = list(struck.project.root.glob("results/mini/*/*/rep1/record.json"))
    assert len(records) == 4
    assert not list(struck.project.root.glob("results/mini/*/*/rep1/attempt-*"))
