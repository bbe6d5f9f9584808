"""Process trees: who outlives whom, and who is below whom."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from feedrate.core import processes, variables
from feedrate.core.processes import listed_descendants

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
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not psutil.pid_exists(pid)


def test_a_child_dies_when_its_parent_is_killed():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        child = int(parent.stdout.readline())
        assert psutil.pid_exists(child)
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


LEAF = "print(flush=True); input()"
BRANCH = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {LEAF!r}])"
ROOT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BRANCH!r}])"


@pytest.fixture
def tree():
    """A process with a child and a grandchild, which live until the test ends."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", ROOT], **pipes) as root:
        root.stdout.readline()
        yield psutil.Process(root.pid)
        root.communicate(b"\n")


@pytest.mark.parametrize("listed", [True, False])
def test_all_below_a_process_are_found_whether_the_kernel_lists_them_or_not(
    tree, listed, monkeypatch
):
    if not listed:
        monkeypatch.setattr(processes.Path, "exists", lambda _: False)
    assert len(listed_descendants(tree)) == 2
    assert set(listed_descendants(tree)) == set(tree.children(recursive=True))


IGNORED = """
import signal
signal.signal(signal.SIGHUP, signal.{})
from feedrate.core.processes import stop_signals
print(signal.SIGHUP in stop_signals())
"""


@pytest.mark.parametrize(("handler", "stops"), [("SIG_DFL", "True"), ("SIG_IGN", "False")])
def test_a_terminal_that_closes_stops_no_run_under_nohup(handler, stops):
    command = [sys.executable, "-c", IGNORED.format(handler)]
    assert subprocess.check_output(command, text=True).strip() == stops


def test_words_that_nobody_can_read_end_no_job():
    """As after `2>&1 | less`, or where the log's disk is full."""
    text = "from feedrate.core.errors import tell; [tell('feedrate', 'words') for _ in range(9)]"
    with Path("/dev/full").open("w") as full:
        assert subprocess.run([sys.executable, "-c", text], stderr=full).returncode == 0
