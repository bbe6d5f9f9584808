"""The supervisor's parts: log, processes, progress."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from training_jobs import make_spec, processes_below, survivors

from feedrate.core.errors import Masker
from feedrate.core.processes import cpu_time_s
from feedrate.jobs import processes, progress
from feedrate.jobs.processes import LogPump, MemorySampler, read_pss_gib
from feedrate.jobs.progress import ProgressLine

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
        made = LogPump(stream, path or tmp_path / "log", mask or Masker({}))
        made.finish()
    return made


def test_output_is_copied_without_secrets(tmp_path):
    made = pump(tmp_path, b"one hf_12345678\ntwo\xff\nthree", Masker({"HF_TOKEN": "hf_12345678"}))
    assert (tmp_path / "log").read_text() == "one ***\ntwo\ufffd\nthree"
    assert list(made.tail) == ["one ***", "two\ufffd", "three"]
    assert not made.disk_full


def test_a_full_disk_stops_no_reading(tmp_path):
    made = pump(tmp_path, b"one\ntwo\n", path=Path("/dev/full"))
    assert made.disk_full
    assert list(made.tail) == ["one", "two"]


TREE = f"""
import json, os, subprocess, sys
from feedrate.core.processes import adopt_orphans
from feedrate.core.processes import descendants
from feedrate.jobs.processes import MemorySampler, read_pss_gib, stop_descendants
adopt_orphans()
child = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], stdout=subprocess.PIPE)
child.stdout.readline()
sampler = MemorySampler()
sampler.sample()
found = descendants(os.getpid())
expected = sum(read_pss_gib(pid) for pid in found)
print(json.dumps([found, sampler.peak_gib, expected]), flush=True)
sys.stdin.readline()
stop_descendants(grace_s=0.3)
print(json.dumps(descendants(os.getpid())), flush=True)
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


def test_dear_sampling_becomes_seldom(monkeypatch):
    ticks = iter([100.0, 100.2])
    monkeypatch.setattr(processes.time, "monotonic", lambda: next(ticks))
    sampler = MemorySampler()
    sampler.sample()
    assert sampler._due_s == pytest.approx(140.0)


def test_a_process_that_is_gone_has_no_memory(tmp_path):
    assert read_pss_gib(1, tmp_path) is None
    (tmp_path / "1").mkdir()
    (tmp_path / "1/status").write_text("VmRSS:\t1048576 kB\n")
    assert read_pss_gib(1, tmp_path) == 1.0
    (tmp_path / "1/smaps_rollup").write_text("Rss: 9 kB\nPss:  524288 kB\n")
    assert read_pss_gib(1, tmp_path) == 0.5


def step(number, *, warmup=False):
    return {"event": "step", "step": number, "samples": 8, "step_s": 0.5, "warmup": warmup}


def test_progress_tells_step_rate_and_time_left_at_most_every_five_seconds(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    line = ProgressLine(make_spec(workers=2, count=2, steps=45, warmup_steps=5), quiet=False)
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
    line.update([{"event": "window"}])
    assert "loader and model alone" in capsys.readouterr().err


def test_quiet_progress_says_nothing(monkeypatch, capsys):
    monkeypatch.setattr(progress.time, "monotonic", lambda: 99.0)
    line = ProgressLine(make_spec(), quiet=True)
    line._due_s = 0.0
    line.update([step(1)])
    line.tell("anything")
    assert capsys.readouterr() == ("", "")


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
