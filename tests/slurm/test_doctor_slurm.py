"""The command doctor on a login node of a real Slurm, and inside one of its jobs."""

import subprocess

from mini_project import Project


def line_of_gaudi2(project: Project, code: int) -> str:
    done = project.call("feedrate", "doctor", "--profile", "gaudi")
    assert done.returncode == code, done.stdout
    (line,) = [row for row in done.stdout.splitlines() if "gaudi2: Slurm: " in row]
    return line


def test_a_login_node_shows_what_slurm_has(project: Project):
    assert "fine " in line_of_gaudi2(project, 0)


def test_a_login_node_shows_what_slurm_refuses(project: Project):
    project.device("gaudi2", job={"gres": "hpu:8"})
    assert "hpu:8" in line_of_gaudi2(project, 1)
    project.device("gaudi2", job={"gres": "gpu:8", "constraint": "nosuch"})
    assert "Invalid feature" in line_of_gaudi2(project, 1)


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
    assert "cpu: torch: " in done.stdout
