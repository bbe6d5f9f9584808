"""The driver: it is alone in its folder, tells its jobs of itself, and cancels what a killed one
left on Slurm."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from feedrate.core import variables
from feedrate.core.scheduler import Job
from feedrate.core.variables import DriverCall, driver_call
from feedrate.flow import driver

HERE = SimpleNamespace(
    is_local=True, retries=0, quiet=None, choices=[], targets=[], until=[], omit_from=[]
)
GRAPH = SimpleNamespace(root=Path("/p"), project=None, runs_to_do=list)
"""Nothing is to do, so nothing is checked."""
HOLD = """
import sys, time
from feedrate.flow import driver
from test_driver import GRAPH, HERE
driver.configuration.check_files = lambda *_, **__: None
driver.configuration.call = lambda: HERE
driver.start(GRAPH, None)
if sys.argv[1] == "end":
    driver.end(GRAPH)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(driver, "_lock", None)
    monkeypatch.setattr(driver.configuration, "check_files", lambda *_, **__: None)
    for variable in (variables.DRIVER, "PATH", "PYTHONPATH"):
        monkeypatch.setenv(variable, os.environ.get(variable, ""))
    return tmp_path


@pytest.fixture
def start(monkeypatch):
    """Start as the driver, called with some options."""

    def begin(**options):
        monkeypatch.setattr(
            driver.configuration, "call", lambda: SimpleNamespace(**vars(HERE) | options)
        )
        driver.start(GRAPH, None)

    return begin


@pytest.fixture
def other(folder):
    """Starts another driver in this folder; all are killed after the test."""
    started = []

    def begin(word="go on"):
        words = [sys.executable, "-c", HOLD, word]
        path = {"PYTHONPATH": str(Path(__file__).parent)}
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, cwd=folder, text=True, env={**os.environ, **path}
        )
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


def mark(host, since="1800000000.0"):
    driver.LOCK.parent.mkdir(exist_ok=True)
    call = DriverCall(pid=4711, host=host, since=since)
    driver.LOCK.write_bytes(msgspec.json.encode(call))


def test_a_second_driver_is_refused_with_the_name_of_the_first(start, other):
    process = other()
    name = f"process {process.pid} on {socket.gethostname()} since "
    assert name in driver.occupied()
    with pytest.raises(driver.Occupied, match=name):
        start()
    assert not driver_call()
    assert name in driver.occupied(), "the refused one leaves the name of the first"


def test_the_kernel_releases_the_lock_of_a_killed_driver(start, other):
    process = other()
    process.kill()
    process.wait()
    assert driver.LOCK.read_text() != ""
    assert driver.occupied() == ""
    start()
    assert driver_call().pid == os.getpid()
    child = subprocess.Popen(["sleep", "60"])
    driver._lock.close()
    assert driver.occupied() == "", "a child does not keep the lock"
    child.kill()
    child.wait()


def test_a_driver_that_ended_by_itself_leaves_an_empty_mark(other):
    process = other("end")
    assert driver.LOCK.read_text() == ""
    process.kill()
    process.wait()
    assert driver.occupied() == ""


def test_a_driver_on_another_host_is_refused_until_its_mark_is_deleted(start):
    mark("login7")
    assert "process 4711 on login7 since " in driver.occupied()
    with pytest.raises(driver.Occupied, match=rf"if it has ended, delete {driver.LOCK}"):
        start()
    driver.LOCK.unlink()
    start()


@pytest.mark.parametrize("text", ["", "{", '{"pid": 1}'])
def test_a_mark_that_cannot_be_read_stops_nobody(start, text):
    driver.LOCK.parent.mkdir()
    driver.LOCK.write_text(text)
    assert driver.occupied() == ""
    start()


def test_jobs_are_told_who_started_them_and_how(start, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    for _ in range(2):
        start(retries=2, quiet={"all"})
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

    monkeypatch.setattr(driver.scheduler, "own_jobs", own_jobs)
    monkeypatch.setattr(driver.scheduler, "cancel", cancelled.extend)
    monkeypatch.setattr(driver.time, "sleep", lambda _: None)
    return jobs, cancelled


def test_what_a_killed_driver_left_on_slurm_is_cancelled_before_the_first_job(start, slurm, capsys):
    jobs, cancelled = slurm
    jobs += [Job("7", "RUNNING"), Job("8", "PENDING")]
    start()
    assert cancelled == [], "no job of this call is on Slurm"
    driver._lock.close()
    start(is_local=False)
    assert [job.id for job in cancelled] == ["7", "8"]
    assert jobs == [], "it has waited for their end"
    assert "cancelling 2 jobs" in capsys.readouterr().err


def test_a_second_driver_cancels_nothing(start, slurm, other):
    jobs, cancelled = slurm
    jobs.append(Job("7", "RUNNING"))
    other()
    with pytest.raises(driver.Occupied):
        start(is_local=False)
    assert cancelled == []


def test_runs_without_a_result_are_counted_with_the_command_of_a_report(start, folder, capsys):
    start(choices=["--profile", "profiles/slurm", "--config", "studies=[a b]"])
    (folder / "made").touch()
    runs = ["made", "one", "other"]
    graph = SimpleNamespace(runs_to_do=lambda _: runs, outcome=str)
    driver.end(graph)
    said = capsys.readouterr().err
    assert "2 runs without a result" in said
    assert said.strip().endswith(
        "python -m feedrate report --profile profiles/slurm --config 'studies=[a b]'"
    )
    driver._lock.close()
    start(until=frozenset({"fetch_dataset"}))
    (folder / "made").touch()
    driver.end(graph)
    assert "the same command without --until measures them" in capsys.readouterr().err
    del runs[1:]
    driver.end(graph)
    assert capsys.readouterr().err == ""
