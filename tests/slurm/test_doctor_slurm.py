"""The command doctor on a login node of a real Slurm, and inside one of its jobs."""

import subprocess

from mini_project import Project


def test_a_login_node_is_told_what_slurm_takes(project: Project):
    done = project.call("feedrate", "doctor", "--profile", "gaudi")
    assert done.returncode == 0, done.stdout
    assert "gaudi2: Slurm: it takes a job with --partition=gaudi2 --gres=gpu:8" in done.stdout
    assert "gaudi2: node: " in done.stdout


def test_a_login_node_is_told_what_slurm_refuses(project: Project):
    project.device("gaudi2", job={"gres": "hpu:8"})
    done = project.call("feedrate", "doctor", "--profile", "gaudi")
    assert done.returncode == 1
    (line,) = [row for row in done.stdout.splitlines() if "gaudi2: Slurm: " in row]
    assert line.startswith("will fail")
    assert "hpu:8" in line


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
    assert "Slurm: this is job " in done.stdout
    assert "cpu: torch: " in done.stdout
