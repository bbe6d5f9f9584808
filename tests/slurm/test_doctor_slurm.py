"""The command doctor on a login node of a real Slurm, and inside one of its jobs."""

import subprocess

from cluster import Cluster
from mini_project import MINI, Project


def slurms_line(project: Project, code: int) -> str:
    done = project.call("feedrate", "doctor", "--profile", "gaudi")
    assert done.returncode == code, done.stdout
    (line,) = [row for row in done.stdout.splitlines() if " Slurm: " in row]
    return line


def test_a_login_node_shows_what_slurm_has(project: Project):
    assert slurms_line(project, 0).startswith("fine ")


def test_a_login_node_shows_what_slurm_refuses(project: Project):
    """Slurm's own words, but for nodes that lack something, and for time limits."""
    project.device("gaudi2", job={"gres": "gpu:9"})
    assert "train_gaudi2: no node has what it asks for" in slurms_line(project, 1)
    project.device("gaudi2", job={"gres": "hpu:8"})
    assert "Invalid generic resource" in slurms_line(project, 1)
    project.device("gaudi2", job={"gres": "gpu:8", "constraint": "nosuch"})
    assert "Invalid feature" in slurms_line(project, 1)
    project.device("gaudi2", job={"gres": "gpu:8"})
    project.study(protocol=MINI["protocol"] | {"timeout_min": 5000})
    assert "gaudi2 allows 2880" in slurms_line(project, 1)


def test_nodes_that_are_down_are_no_reason(cluster: Cluster, project: Project):
    project.device("gaudi2", job={"gres": "gpu:9"})
    try:
        cluster.down("gaudi2-1")
        assert slurms_line(project, 0).startswith("fine ")
    finally:
        cluster.start()


def test_a_job_examines_its_own_node(project: Project):
    command = ["srun", "--partition=cpu", "--cpus-per-task=1", project.python, "-m", "feedrate"]
    done = subprocess.run(
        [*command, "doctor", "--profile", "gaudi", "--device", "cpu"],
        cwd=project.root,
        env=project.env(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cpu: packages: torch " in done.stdout
