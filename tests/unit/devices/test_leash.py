"""Processes that do not outlive their parent."""

import os
import signal
import subprocess
import sys
import time

from feedrate.devices.leash import SUPERVISOR, is_alive

CHILD = """
import time
from feedrate.devices.leash import die_with_supervisor
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


def test_a_worker_that_starts_after_its_supervisor_died_ends_at_once():
    with subprocess.Popen([sys.executable, "-c", "pass"]) as dead:
        pass
    ended = subprocess.run(
        [sys.executable, "-c", CHILD],
        env={**os.environ, SUPERVISOR: str(dead.pid)},
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stdout == b""


def test_another_users_process_is_alive():
    assert is_alive(1)
    assert is_alive(os.getpid())
