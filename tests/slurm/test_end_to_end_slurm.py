"""`snakemake --profile gaudi`, exactly as typed, from a clone to the report, on a real Slurm.

All processes of the job that trains on Gaudi are new interpreters, as for a user; all others are
warm. Without Slurm, a whole workflow of new ones is run in tests/workflow, and jobs that train on
CPUs on Slurm in test_slurm_faults.py.

Configuration replaces the devices: Gaudi by its stand-in, if the environment for it exists, and
GPUs by the CPU; H100 spans two nodes. Partitions, gres, cores and memory are those of the registry
and of profiles/gaudi, unchanged.
"""

import csv
import os
import re
from collections.abc import Iterator

import pytest
from cluster import Cluster
from mini_project import MINI, ROOT, Project, make_project

import warm

GAUDI_PYTHON = ROOT / ".venv-gaudi/bin/python"
STAND_IN = {
    "kind": "hpu",
    "software": {
        "python": str(GAUDI_PYTHON),
        "environment": {
            "PYTHONPATH": os.pathsep.join(
                [str(ROOT / "tests/gaudi/standin"), str(ROOT / "workflow")]
            )
        },
    },
}
CPU = {"kind": "cpu", "model_pattern": None, "peaks": [], "memory_gib": None}
ONE = {"count": 1, "launcher": "single", "capabilities": ["fp32", "bf16", "ddp"]}
TWO_NODES = {"count": 2, "nodes": 2, "launcher": "srun", "capabilities": ["fp32", "bf16", "ddp"]}
DEVICES = ("gaudi2", "h100")


@pytest.fixture(scope="module")
def done(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project that has run to its end on the cluster; tests only read it."""
    project = make_project(tmp_path_factory.mktemp("cluster") / "project")
    project.cold = "--allowed-rules train_gaudi2 "
    project.device("gaudi2", **ONE, **(STAND_IN if GAUDI_PYTHON.exists() else CPU))
    project.device("h100", **TWO_NODES, **CPU, software={"python": warm.python()})
    workers = {"sets": "loader.workers", "levels": [0]}
    project.study(factors=MINI["factors"] | {"workers": workers})
    with (project.root / "profiles/gaudi/config.yaml").open("a") as profile:
        profile.write("slurm-init-seconds-before-status-checks: 2\n")  # instead of 40
    choices = project.root / "profiles/gaudi/choices.yaml"
    choices.write_text(f"devices: [{', '.join(DEVICES)}]\n")
    made = project.call("snakemake", "--profile", "gaudi", timeout=500)
    assert made.returncode == 0, made.stdout + logs(project)
    yield project
    cluster.cancel(project.root)


def logs(project: Project) -> str:
    """What failed jobs left behind."""
    found = project.root.glob(".snakemake/slurm_logs/**/*.log")
    return "\n".join(path.read_text()[-3000:] for path in found)


@pytest.fixture(scope="module")
def jobs(cluster: Cluster, done: Project) -> dict[str, dict[str, str]]:
    """What Slurm reports about the job of each rule."""
    return {job["Rule"]: job for job in cluster.jobs(done.root)}


def test_every_rule_is_one_job_of_slurm_but_the_short_ones(cluster, done, jobs):
    trained = {"train_gaudi2", "train_h100"}
    assert set(jobs) == {"fetch_dataset", "preprocess_dataset"} | trained
    assert len(cluster.jobs(done.root)) == len(jobs)
    assert {job["JobState"] for job in jobs.values()} == {"COMPLETED"}


@pytest.mark.parametrize(
    ("rule", "partition", "gres", "cores", "exclusive"),
    [
        ("fetch_dataset", "network", None, 1, False),
        ("preprocess_dataset", "cpu", None, 16, False),
        ("train_gaudi2", "gaudi2", "gres:gpu:8", 160, True),
        ("train_h100", "h100", "gres:gpu:8", 2 * 192, True),
    ],
)
def test_each_runs_in_its_partition_with_what_it_asks_for(
    jobs, rule, partition, gres, cores, exclusive
):
    job = jobs[rule]
    assert job["Partition"] == partition
    assert re.fullmatch(rf"{partition}-(\d|\[1-2\])", job["NodeList"])
    assert job.get("TresPerNode") == gres
    assert int(job["NumCPUs"]) == cores
    assert (job["OverSubscribe"] == "NO") is exclusive
    assert job["Requeue"] == "0"
    assert job["JobName"].startswith("feedrate_")


def test_time_and_memory_are_those_of_registry_and_profile(jobs):
    assert jobs["fetch_dataset"]["TimeLimit"] == "02:00:00"
    assert jobs["train_gaudi2"]["TimeLimit"] == "04:20:00"
    assert jobs["train_gaudi2"]["MinMemoryNode"] == "900000M"
    assert jobs["preprocess_dataset"]["MinMemoryNode"] == "16000M"


def test_a_device_of_two_nodes_is_one_job_with_a_rank_on_each(done, jobs):
    assert jobs["train_h100"]["NodeList"] == "h100-[1-2]"
    assert jobs["train_h100"]["NumNodes"] == "2"
    record = done.record("workers=0~decode=host", "h100")
    assert record["status"] == "ok", record["cause"]
    assert record["measurement"]["samples"] == 2 * 2 * 2
    cell = done.root / "runs/mini/h100/workers=0~decode=host"
    assert list(cell.glob("rep1-*/events.rank1.jsonl"))


def test_every_run_has_its_record_and_the_tables_hold_it(done):
    with (done.root / "results/results.csv").open(newline="") as stream:
        rows = {row["device"]: row for row in csv.DictReader(stream) if "=host" in row["cell"]}
    assert {device: row["status"] for device, row in rows.items()} == dict.fromkeys(
        DEVICES, "ok"
    ), [row["cause"] for row in rows.values()]
    assert all(float(row["samples_per_s"]) > 0 for row in rows.values())


def test_then_the_report_is_there(done):
    report = (done.root / "report.html").read_text()
    for words in ("A small study", "Gaudi2", "H100"):
        assert words in report


def test_again_there_is_nothing_to_do_and_nothing_is_sent(cluster, done, jobs):
    again = done.call("snakemake", "--profile", "gaudi")
    assert again.returncode == 0, again.stdout
    assert len(cluster.jobs(done.root)) == len(jobs)
