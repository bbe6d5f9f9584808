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

from feedrate.core.secrets import Masker
from feedrate.core.variables import DriverCall
from feedrate.devices.launch import Launch
from feedrate.jobs import processes
from feedrate.jobs.events import Ceiling, Evaluation, Stages, Step
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
        copied = LogPump(stream, log, mask or Masker({}))
        copied.join(5)
    return copied


def test_output_is_copied_without_secrets(tmp_path):
    made = pump(tmp_path, b"one hf_12345678\ntwo\xff\nthree", Masker({"HF_TOKEN": "hf_12345678"}))
    assert (tmp_path / "log").read_text() == "one ***\ntwo\ufffd\nthree"
    assert list(made.tail) == ["one ***", "two\ufffd", "three"]
    assert not made.disk_full


def test_a_progress_bar_does_not_push_an_error_out_of_what_is_kept(tmp_path):
    bar = b"\r  7%|#         | 7/99 [00:01<00:02, 9.5it/s]"
    bars = bar * (processes.TAIL_LINES + 1)
    made = pump(tmp_path, b"ValueError: early\n" + bars + b"\n" + bars.replace(b"\r", b"\n"))
    assert [line for line in made.tail if line] == ["ValueError: early"]


def test_secrets_that_only_the_jobs_environment_has_are_hidden(tmp_path, monkeypatch):
    monkeypatch.setattr(processes.processes, "adopt_orphans", lambda: None)
    code = "import os; print(os.environ['X_TOKEN'])"
    environment = {**os.environ, "X_TOKEN": "abcdefgh"}
    launch = Launch(command=[sys.executable, "-c", code], environment=environment)
    monkeypatch.setattr(processes, "stop_descendants", lambda: None)
    idle = SimpleNamespace(check=lambda: None, update=lambda events: None)
    with Path(os.devnull).open() as lock:
        end = processes.run_processes(
            tmp_path, launch, limit_min=1, locks=[lock.fileno()], requests=idle, progress=idle
        )
    assert end.tail == ["***"]


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


@pytest.fixture
def clock(monkeypatch):
    """The time, s."""
    now_s = [0.0]
    monkeypatch.setattr(processes.time, "monotonic", lambda: now_s[0])
    return now_s


def test_the_time_left_counts_steps_scoring_and_rounds(clock, capsys):
    spec = make_spec(workers=2, count=2, steps=45, warmup_steps=5, ceiling_s=10, evaluate=True)
    line = ProgressLine(spec, quiet=False)
    clock[0] = 5.0
    line.update([Evaluation(rank=0, moment="before", seconds=30.0), step(5, warmup=True)])
    assert capsys.readouterr().err == "", "no rate is known yet"
    line.update([step(n) for n in range(6, 21)])
    # 25 steps of 0.5 s, the second scoring, and live, loader, model and exchange for 10 s each.
    expected = "cpu workers=2, repeat 1: step 20/45, 32 samples/s, about 1:22 left of this run\n"
    assert capsys.readouterr().err == expected


def test_a_job_prints_a_second_line_after_a_minute_and_further_ones_seldom(clock, capsys):
    line = ProgressLine(make_spec(steps=9000, warmup_steps=1, ceiling_s=1), quiet=False)
    due = []
    for second in range(1000):
        clock[0] = float(second)
        line.update([step(second + 2)])
        if capsys.readouterr().err:
            due.append(second)
    assert due == [5, 65, 130, 260, 520]


def test_after_the_steps_what_is_left_of_rounds_and_scoring_counts(clock, capsys):
    spec = make_spec(steps=6, warmup_steps=1, ceiling_s=10, evaluate=True)
    line = ProgressLine(spec, quiet=False)
    clock[0] = 5.0
    block = Ceiling(rank=0, kind="live", samples=8, wall_s=4.0)
    before, after = (
        Evaluation(rank=0, moment=moment, seconds=7.0) for moment in ("before", "after")
    )
    line.update([before, *(step(n) for n in range(2, 7)), after, block])
    assert "about 26 s left" in capsys.readouterr().err
    clock[0] = 70.0
    line.update([Stages(rank=0, steps=1)])
    assert capsys.readouterr().err == "", "hardly anything is left"


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
