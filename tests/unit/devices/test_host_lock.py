"""One job at a time on a host, of all clones of a user."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from feedrate.devices.host import host_lock, lock_path

HOLD = """
import sys, time
from pathlib import Path
from feedrate.devices.host import host_lock
with host_lock(Path(sys.argv[1]), print):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def hold(path, seconds):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), str(seconds)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_job_waits_and_says_once_for_whom(tmp_path):
    path, told = tmp_path / "lock", []
    with hold(path, 1.2) as first, host_lock(path, told.append):
        assert first.wait(10) == 0
    assert told == [f"waiting: another job of feedrate runs on this host (pid {first.pid})"]


def test_a_free_lock_is_taken_without_a_word(tmp_path):
    told = []
    with host_lock(tmp_path / "lock", told.append):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    assert told == []


def test_waiting_can_be_given_up(tmp_path):
    def give_up():
        raise KeyboardInterrupt

    path = tmp_path / "lock"
    with hold(path, 30) as first:
        with pytest.raises(KeyboardInterrupt), host_lock(path, lambda _text: None, give_up):
            pass
        first.kill()


def test_a_lock_held_by_a_killed_process_is_free(tmp_path):
    path, told = tmp_path / "lock", []
    with hold(path, 30) as first:
        first.kill()
    with host_lock(path, told.append):
        pass
    assert told == []


def test_a_lock_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="lock"), host_lock(tmp_path / "lock", print):
        pass
    assert not (tmp_path / "other").exists()


def test_the_lock_is_the_users_own():
    assert lock_path().parent == Path(tempfile.gettempdir())
    assert str(os.getuid()) in lock_path().name
