"""The CPU time of processes, and the time for which they wait for a core."""

import os
import subprocess
import sys

from feedrate.devices.load import core_wait_s, cpu_time_s


def test_cpu_time_is_that_of_a_process_and_of_those_below_it():
    code = "import time\nwhile time.process_time() < 0.4: pass\nprint(flush=True); input()"
    used_s = cpu_time_s(os.getpid())
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as child:
        child.stdout.readline()
        below_s = cpu_time_s(child.pid)
        taken_s = cpu_time_s(os.getpid()) - used_s
        child.communicate(b"\n")
    assert below_s >= 0.38  # the kernel counts ticks of 10 ms
    assert taken_s >= below_s - 0.02


def test_threads_that_share_a_core_wait_for_it():
    """Two processes on one core: each runs for 0.3 s, and meanwhile the other waits."""
    code = (
        "import os, time\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "print(flush=True); input()\n"
        "while time.process_time() < 0.3: pass\nprint(flush=True); input()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    pair = [subprocess.Popen([sys.executable, "-c", code], **pipes) for _ in range(2)]
    for one in pair:
        one.stdout.readline()
    before_s = core_wait_s()
    for one in pair:
        one.stdin.write(b"\n")
        one.stdin.flush()
    for one in pair:
        one.stdout.readline()
    waited_s = core_wait_s() - before_s
    for one in pair:
        one.communicate(b"\n")
    assert waited_s >= 0.1
