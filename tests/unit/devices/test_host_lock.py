"""One job at a time on a host: of all projects of a user, and in all containers."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from feedrate.devices.host import host_lock

HOLD = """
import os, sys, time
from feedrate.devices.host import host_lock
with host_lock(print) as locks:
    if sys.argv[2:]:
        if os.fork():
            os._exit(0)
    print("held", flush=True)
    time.sleep(float(sys.argv[1]))
"""


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """This process is in a project, and has a folder for temporary files, of its own."""
    project = tmp_path / "project"
    for folder in (project, tmp_path / "tmp"):
        folder.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return project


def hold(seconds, *more, before=(), **options):
    """A process that holds the lock for so long."""
    command = [*before, sys.executable, "-c", HOLD, str(seconds), *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
    assert process.stdout.readline() == "held\n"
    return process


def waits(first):
    """Whether this process has to wait for the lock until `first` ends; it says so once."""
    told = []
    with host_lock(told.append):
        assert first.wait(10) == 0
    return [text.partition(" (")[0] for text in told] == [
        "waiting: another job of feedrate runs on this host"
    ]


def test_a_job_with_its_own_folder_for_temporary_files_waits_too(tmp_path, monkeypatch):
    """Many clusters give each job one. It says once that it waits."""
    with hold(1.2) as first:
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr(tempfile, "tempdir", None)
        assert waits(first)


def test_a_job_of_another_project_waits_too(tmp_path, monkeypatch):
    with hold(1.2) as first:
        monkeypatch.chdir(tmp_path)
        assert waits(first)


def test_a_job_in_a_container_waits_too():
    """It has its own network, folder of temporary files and process numbers."""
    container = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*container, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespaces on this machine")
    with hold(1.2, before=[*container, "env", "TMPDIR=/dev/shm"]) as first:
        assert waits(first)
    for file in Path("/dev/shm").glob("feedrate.*"):
        file.unlink()


def test_waiting_can_be_given_up():
    def give_up():
        raise KeyboardInterrupt

    with hold(30) as first:
        with pytest.raises(KeyboardInterrupt), host_lock(lambda _text: None, give_up):
            pass
        first.kill()


def test_a_lock_held_by_a_killed_process_is_free():
    told = []
    with hold(30) as first:
        first.kill()
    with host_lock(told.append):
        pass
    assert told == []


def test_a_child_holds_the_lock_until_it_ends():
    told = []
    with hold(1.2, "fork") as first:
        first.wait(10)
        with host_lock(told.append):
            pass
    assert len(told) == 1


@pytest.mark.parametrize("place", ["project", "temporary"])
def test_on_a_file_system_without_locks_the_other_file_counts(place, monkeypatch):
    """As Lustre may be mounted."""
    from feedrate.devices import host

    flock = host.fcntl.flock

    def refuse(stream, how):
        if (".snakemake" in stream.name) == (place == "project"):
            raise OSError(host.errno.ENOSYS, "Function not implemented")
        flock(stream, how)

    with hold(1.2) as first:
        monkeypatch.setattr(host.fcntl, "flock", refuse)
        assert waits(first)
