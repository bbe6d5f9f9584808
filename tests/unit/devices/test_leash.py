"""Processes that do not outlive their parent."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from feedrate.core import variables
from feedrate.core.processes import is_alive, supervisor

CHILD = """
import time
from feedrate.core.processes import die_with_supervisor
die_with_supervisor()
print("up", flush=True)
time.sleep(60)
"""
PARENT = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], stdout=subprocess.PIPE,
                         start_new_session=True)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""


def gone(pid: int, within_s: float = 10.0) -> bool:
    deadline = time.monotonic() + within_s
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_alive(pid)


def test_a_child_dies_when_its_parent_is_killed():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        child = int(parent.stdout.readline())
        assert is_alive(child)
        parent.send_signal(signal.SIGKILL)
    assert gone(child)


@pytest.fixture
def dead():
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        pass
    return process.pid


def first_word(value: str) -> bytes:
    """What a worker says whose supervisor is `value`."""
    environment = {**os.environ, variables.SUPERVISOR_PID: value}
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], env=environment, stdout=subprocess.PIPE
    ) as child:
        said = child.stdout.readline()
        child.kill()
    return said


def test_a_worker_that_starts_after_its_supervisor_died_ends_at_once(dead):
    assert first_word(f"{dead}@{socket.gethostname()}") == b""
    assert first_word(str(dead)) == b""


def test_a_supervisor_on_another_host_is_not_looked_for_here(dead):
    assert first_word(f"{dead}@elsewhere") == b"up\n"


def test_a_process_names_itself_as_supervisor():
    assert supervisor() == f"{os.getpid()}@{socket.gethostname()}"
    assert first_word(supervisor()) == b"up\n"


def test_another_users_process_is_alive():
    assert is_alive(1)
    assert is_alive(os.getpid())
