"""The project in places that other people gave it: users without a home, full and read-only disks,
a path with braces, a clone of another user."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mini_project import ROOT, Project, make_project

MOUNTS = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
"""What is mounted after this is seen by nobody else."""
RUN, SNAKEMAKE = ["feedrate", "run", "-n"], ["snakemake", "--profile", "local", "-n"]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    tried = subprocess.run([*MOUNTS, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"mounts are not permitted: {tried.stderr.strip()}")
    return make_project(tmp_path_factory.mktemp("strange") / "project")


def call(root: Path, command: list[str], before: str = "", **variables: str):
    """Run `python -m COMMAND` in the project, after the shell's words `before`."""
    whole = 'eval "$0"; exec "$@"'
    words = [*MOUNTS, "sh", "-c", whole, before, sys.executable, "-m", *command]
    environment = Project(root).env() | variables
    return subprocess.run(
        words, cwd=root, env=environment, capture_output=True, text=True, check=False
    )


FULL = "mount -t tmpfs -o size=64k tmpfs {0} && dd if=/dev/zero of={0}/x bs=4k 2>&-"
HOMES = {
    "none": "mount --bind /dev/null /etc/passwd && unset HOME USER LOGNAME",
    "absent": "export HOME=/proc/none",
    "full": FULL.format("home"),
    "read-only": "mount -t tmpfs -o ro tmpfs home",
    "other caches": "export XDG_CACHE_HOME=/proc/none",
}


@pytest.mark.parametrize(
    ("command", "home"), [*((RUN, home) for home in HOMES), (SNAKEMAKE, "read-only")]
)
def test_a_home_that_takes_no_caches_stops_nothing(project, command, home):
    """A dry-run starts Snakemake too, which looks for a home before it imports anything of ours."""
    done = call(project.root, command, HOMES[home])
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


DISK_FULL = FULL.format(".snakemake")
READ_ONLY = "mount -t tmpfs -o ro tmpfs .snakemake"
NO_HOME = f"{READ_ONLY} && export HOME=/proc/none"


@pytest.mark.parametrize(
    ("command", "before", "words"),
    [
        (RUN, DISK_FULL, "the disk is full at "),
        (SNAKEMAKE, DISK_FULL, "the disk is full at "),
        (SNAKEMAKE, NO_HOME, "read-only file system"),
        (["feedrate", "run"], NO_HOME, "read-only file system"),
        (["feedrate", "selftest"], READ_ONLY, "read-only file system"),
    ],
)
def test_a_project_that_takes_no_files_is_one_sentence(project, command, before, words):
    (project.root / ".snakemake").mkdir(exist_ok=True)
    done = call(project.root, command, before)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_braces_in_the_path_are_one_sentence(tmp_path):
    project = make_project(tmp_path / "a {clone}")
    for command in (RUN, SNAKEMAKE):
        done = project.call(*command)
        assert done.returncode == 1
        assert "a {clone} for wildcards: rename it" in done.stdout
        assert "Traceback" not in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
def test_the_commit_of_another_users_clone_is_known(tmp_path):
    clone = tmp_path / "clone"
    bare = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "workflow", clone / "workflow", ignore=bare)
    names = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q"], ["add", "."], [*names, "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=clone, check=True)
    for path in (clone, clone / ".git"):
        os.chown(path, 12345, 12345)
    refused = subprocess.run(["git", "describe", "--always"], cwd=clone, capture_output=True)
    code = "from feedrate.jobs.supervisor import read_commit; print(read_commit())"
    environment = os.environ | {"PYTHONPATH": str(clone / "workflow")}
    known = subprocess.run(
        [sys.executable, "-c", code], cwd=clone, env=environment, capture_output=True, check=True
    )
    assert refused.returncode != 0
    assert len(known.stdout.strip()) == 40
