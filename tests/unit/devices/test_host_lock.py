"""One job at a time on a host, of all clones of a user."""

import subprocess
import sys

import pytest

from feedrate.devices.host import host_lock

HOLD = """
import os, sys, time
from feedrate.devices.host import host_lock
with host_lock(sys.argv[1], print) as lock:
    if sys.argv[3:]:
        if os.fork():
            os._exit(0)
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def name(tmp_path):
    return f"{tmp_path}"[-90:]


def hold(name, seconds, *more):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, name, str(seconds), *more], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_job_waits_and_says_once_for_whom(name):
    told = []
    with hold(name, 1.2) as first, host_lock(name, told.append):
        assert first.wait(10) == 0
    assert told == [f"waiting: another job of feedrate runs on this host (pid {first.pid})"]


def test_a_job_with_its_own_folder_for_temporary_files_waits_too(name, tmp_path, monkeypatch):
    """Many clusters give each job one."""
    told = []
    with hold(name, 1.2):
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        with host_lock(name, told.append):
            pass
    assert len(told) == 1


def test_waiting_can_be_given_up(name):
    def give_up():
        raise KeyboardInterrupt

    with hold(name, 30) as first:
        with pytest.raises(KeyboardInterrupt), host_lock(name, lambda _text: None, give_up):
            pass
        first.kill()


def test_a_lock_held_by_a_killed_process_is_free(name):
    told = []
    with hold(name, 30) as first:
        first.kill()
    with host_lock(name, told.append):
        pass
    assert told == []


def test_a_child_holds_the_lock_until_it_ends(name):
    told = []
    with hold(name, 1.2, "fork") as first:
        first.wait(10)
        with host_lock(name, told.append):
            pass
    assert len(told) == 1
