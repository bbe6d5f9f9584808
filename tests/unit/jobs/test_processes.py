"""The supervisor's parts: log, processes, progress."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from training_jobs import make_spec, processes_below, survivors

from feedrate.core.errors import Masker
from feedrate.core.variables import DriverCall
from feedrate.devices.launch import Launch
from feedrate.jobs import processes
from feedrate.jobs.events import Data, Evaluation, Step, Window
from feedrate.jobs.outcome import MachineFault
from feedrate.jobs.processes import LogPump, ProgressLine, memory_gib

STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
os.wait()
print("up", flush=True)
time.sleep(60)
"""


def pump(tmp_path, text, mask=None, path=None):
    source, sink = os.pipe()
    os.write(sink, text)
    os.close(sink)
    with os.fdopen(source, "rb") as stream:
        log = (path or tmp_path / "log").open("wb", buffering=0)
        made = LogPump(stream, log, mask or Masker({}))
        made.finish()
    return made


def test_output_is_copied_without_secrets(tmp_path):
    made = pump(tmp_path, b"one hf_12345678\ntwo\xff\nthree", Masker({"HF_TOKEN": "hf_12345678"}))
    assert (tmp_path / "log").read_text() == "one ***\ntwo\ufffd\nthree"
    assert list(made.tail) == ["one ***", "two\ufffd", "three"]
    assert not made.disk_full


def test_secrets_that_only_the_jobs_environment_has_are_hidden(tmp_path, monkeypatch):
    monkeypatch.setattr(processes.processes, "adopt_orphans", lambda: None)
    code = "import os; print(os.environ['X_TOKEN'])"
    environment = {**os.environ, "X_TOKEN": "abcdefgh"}
    launch = Launch(command=[sys.executable, "-c", code], environment=environment)
    with Path(os.devnull).open() as lock:
        process, made = processes._start(launch, [lock.fileno()], tmp_path / "log")
        process.wait(30)
        made.finish()
    assert list(made.tail) == ["***"]


def test_a_full_disk_stops_no_reading(tmp_path):
    made = pump(tmp_path, b"one\ntwo\n", path=Path("/dev/full"))
    assert made.disk_full
    assert list(made.tail) == ["one", "two"]


TREE = f"""
import json, subprocess, sys
from feedrate.core.processes import adopt_orphans, descendants
from feedrate.jobs.processes import MemorySampler, memory_gib, stop_descendants
adopt_orphans()
child = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], stdout=subprocess.PIPE)
child.stdout.readline()
sampler = MemorySampler()
sampler.sample()
found = descendants()
expected = sum(memory_gib(process) for process in found)
print(json.dumps([[p.pid for p in found], sampler.peak_gib, expected]), flush=True)
sys.stdin.readline()
stop_descendants(grace_s=0.3)
print(json.dumps([p.pid for p in descendants()]), flush=True)
"""


def test_a_stubborn_job_and_its_orphans_are_found_measured_and_stopped():
    with subprocess.Popen(
        [sys.executable, "-c", TREE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as root:
        found, peak_gib, expected_gib = json.loads(root.stdout.readline())
        below = processes_below(root.pid)
        assert len(below) == 2  # one ignores SIGTERM; the other has left its session and parent
        assert sorted(found) == below
        assert peak_gib == pytest.approx(expected_gib, rel=0.2)
        left = root.communicate("go\n", timeout=30)[0]
    assert json.loads(left) == []
    assert survivors(below) == []


def test_shared_pages_count_once():
    """A fork shares all its pages: two processes take little more than one."""
    code = "import os\nx = bytearray(2**27)\nos.fork()\nprint(flush=True)\ninput()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as parent:
        for _ in range(2):
            parent.stdout.readline()
        both = [psutil.Process(parent.pid), *psutil.Process(parent.pid).children()]
        assert len(both) == 2
        assert 0.125 <= sum(memory_gib(process) for process in both) < 0.2
        assert sum(process.memory_info().rss for process in both) > 0.25 * 2**30
        parent.communicate(b"\n\n")
    assert memory_gib(both[0]) is None


def step(number, *, warmup=False):
    return Step(rank=0, step=number, samples=8, step_s=0.5, warmup=warmup)


WINDOW = Window(rank=0, first_step=6, last_step=45, steps=40, samples=320, wall_s=20.0)


def test_progress_tells_step_rate_and_time_left_at_most_every_five_seconds(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(processes.time, "monotonic", lambda: now[0])
    line = ProgressLine(
        make_spec(workers=2, count=2, steps=45, warmup_steps=5, ceiling_s=1), quiet=False
    )
    line.update([step(1, warmup=True)])
    assert capsys.readouterr().err == ""
    now[0] = 5.0
    line.update([])
    assert capsys.readouterr().err == "cpu workers=2 rep 1: step 1/45, warming up\n"
    now[0] = 9.0
    line.update([step(n) for n in range(6, 21)])
    assert capsys.readouterr().err == ""
    now[0] = 10.0
    line.update([])
    expected = "cpu workers=2 rep 1: step 20/45, 32.0 samples/s, 12 s left\n"
    assert capsys.readouterr().err == expected
    now[0] = 15.0
    line.update([WINDOW])
    assert "loader and model alone" in capsys.readouterr().err


@pytest.mark.parametrize(("ceiling_s", "last"), [(1, "loader and model alone"), (0, "finishing")])
def test_progress_tells_when_a_model_is_evaluated(monkeypatch, capsys, ceiling_s, last):
    monkeypatch.setattr(processes, "PROGRESS_EVERY_S", 0.0)
    line = ProgressLine(make_spec(evaluate=True, ceiling_s=ceiling_s), quiet=False)
    shown = [
        (Data(rank=0), "evaluating"),
        (Evaluation(rank=0, moment="before"), "starting"),
        (step(1, warmup=True), "warming up"),
        (WINDOW, "evaluating"),
        (Evaluation(rank=0, moment="after"), last),
    ]
    for event, state in shown:
        line.update([event])
        assert state in capsys.readouterr().err


def test_a_driver_that_died_before_its_job_began_ends_the_job():
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    call = DriverCall(pid=dead.pid, host=socket.gethostname(), since="1")
    with pytest.raises(processes.Interrupted, match="has died"):
        processes.StopRequests(call)


def test_a_process_that_no_signal_ends_is_a_fault_of_the_machine(monkeypatch):
    hangs = SimpleNamespace(pid=4711, terminate=lambda: None, kill=lambda: None)
    monkeypatch.setattr(processes, "descendants", lambda: [hangs])
    monkeypatch.setattr(processes, "KILLED_S", 0.1)
    with pytest.raises(MachineFault, match="4711"):
        processes.stop_descendants(grace_s=0)
