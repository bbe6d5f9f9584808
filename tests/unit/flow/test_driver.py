"""The driver: it is alone in its folder, tells its jobs of itself, and cancels what a killed one
left on Slurm."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from feedrate.core import variables
from feedrate.core.errors import ExpectedError
from feedrate.core.slurm import Job
from feedrate.core.variables import DriverCall, driver_call
from feedrate.flow import driver
from feedrate.flow.configuration import Call

HERE = Call(is_local=True, targets=[], configfiles=[], profile_files=[])
HOLD = """
import sys, time
from pathlib import Path
from feedrate.flow import driver
from feedrate.flow.configuration import Call
driver.start(Call(is_local=True, targets=[], configfiles=[], profile_files=[]), Path("workflow"))
if sys.argv[1] == "end":
    driver.release()
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(driver, "_lock", None)
    for variable in (variables.DRIVER, "PATH", "PYTHONPATH"):
        monkeypatch.setenv(variable, os.environ.get(variable, ""))
    return tmp_path


@pytest.fixture
def other(folder):
    """Starts another driver in this folder; all are killed after the test."""
    started = []

    def start(word="go on"):
        words = [sys.executable, "-c", HOLD, word]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, cwd=folder, text=True)
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def mark(host, since="1800000000.0"):
    driver.LOCK.parent.mkdir(exist_ok=True)
    call = DriverCall(pid=4711, host=host, since=since)
    driver.LOCK.write_bytes(msgspec.json.encode(call))


def test_a_second_driver_is_refused_with_the_name_of_the_first(other):
    process = other()
    name = f"process {process.pid} on {socket.gethostname()} since "
    assert name in driver.occupied()
    with pytest.raises(driver.Occupied, match=name):
        driver.start(HERE, Path("workflow"))
    assert not driver_call()
    assert name in driver.occupied(), "the refused one leaves the name of the first"


def test_the_kernel_releases_the_lock_of_a_killed_driver(other):
    process = other()
    process.kill()
    process.wait()
    assert driver.LOCK.read_text() != ""
    assert driver.occupied() == ""
    driver.start(HERE, Path("workflow"))
    assert driver_call().pid == os.getpid()


def test_children_of_a_driver_do_not_keep_its_lock(folder):
    driver.start(HERE, Path("workflow"))
    child = subprocess.Popen(["sleep", "60"])
    driver._lock.close()
    assert driver.occupied() == ""
    child.kill()
    child.wait()


def test_a_driver_that_ended_by_itself_leaves_an_empty_mark(other):
    process = other("end")
    assert driver.LOCK.read_text() == ""
    process.kill()
    process.wait()
    assert driver.occupied() == ""


def test_a_driver_on_another_host_is_refused_until_its_mark_is_deleted():
    mark("login7")
    assert "process 4711 on login7 since " in driver.occupied()
    with pytest.raises(driver.Occupied, match=rf"if it has ended, delete {driver.LOCK}"):
        driver.start(HERE, Path("workflow"))
    driver.LOCK.unlink()
    driver.start(HERE, Path("workflow"))


@pytest.mark.parametrize("text", ["", "{", '{"pid": 1}'])
def test_a_mark_that_cannot_be_read_stops_nobody(text):
    driver.LOCK.parent.mkdir()
    driver.LOCK.write_text(text)
    assert driver.occupied() == ""
    driver.start(HERE, Path("workflow"))


def test_runs_of_an_earlier_layout_are_refused(folder):
    old = folder / "results/loading/cpu/workers=1/rep1/outcome.json"
    old.parent.mkdir(parents=True)
    old.write_text("{}")
    with pytest.raises(ExpectedError, match="move or delete results/"):
        driver.start(HERE, Path("workflow"))
    assert driver.occupied() == ""
    assert not driver.STARTED.exists()


def test_jobs_are_told_who_started_them_and_how(monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    for _ in range(2):
        driver.start(HERE._replace(retries=2, is_quiet=True), Path("/p/workflow"))
        driver._lock.close()
    assert os.environ["PATH"] == f"{Path(sys.executable).parent}:/usr/bin"
    assert os.environ["PYTHONPATH"] == "/p/workflow:/elsewhere"
    call = driver_call()
    assert (call.pid, call.host) == (os.getpid(), socket.gethostname())
    assert (call.retries, call.quiet) == (2, True)
    assert float(call.since) > 1.7e9
    assert driver.STARTED.exists()


@pytest.fixture
def slurm(monkeypatch):
    """A Slurm with these jobs of this folder, which cancelled ones leave after some questions."""
    jobs, cancelled = [], []

    def own_jobs():
        if cancelled:
            jobs.pop()
        return list(jobs)

    monkeypatch.setattr(driver.slurm, "own_jobs", own_jobs)
    monkeypatch.setattr(driver.slurm, "cancel", cancelled.extend)
    monkeypatch.setattr(driver.time, "sleep", lambda _: None)
    return jobs, cancelled


def test_what_a_killed_driver_left_on_slurm_is_cancelled_before_the_first_job(slurm, capsys):
    jobs, cancelled = slurm
    jobs += [Job("7", "RUNNING"), Job("8", "PENDING")]
    driver.start(HERE, Path("workflow"))
    assert cancelled == [], "no job of this call is on Slurm"
    driver._lock.close()
    driver.start(HERE._replace(is_local=False), Path("workflow"))
    assert [job.id for job in cancelled] == ["7", "8"]
    assert jobs == [], "it has waited for their end"
    assert "cancelling 2 jobs" in capsys.readouterr().err


def test_a_second_driver_cancels_nothing(slurm, other):
    jobs, cancelled = slurm
    jobs.append(Job("7", "RUNNING"))
    other()
    with pytest.raises(driver.Occupied):
        driver.start(HERE._replace(is_local=False), Path("workflow"))
    assert cancelled == []


def test_a_target_is_taken_out_of_the_command(monkeypatch):
    words = ["snakemake", "--profile", "plan", "plan", "--config", "devices=[h100, cpu]"]
    monkeypatch.setattr(sys, "argv", words)
    rest = ["--profile", "plan", "--config", "devices=[h100, cpu]"]
    assert driver.arguments_without("plan") == rest
