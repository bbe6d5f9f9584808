import os
import subprocess
import sys
from pathlib import Path

import pytest

from feedrate import driver

HOLD = "import sys, time; from feedrate import driver; driver.hold(); print('held', flush=True); "


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(driver, "_held", None)
    return tmp_path


@pytest.fixture
def other(folder):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD + "time.sleep(60)"], stdout=subprocess.PIPE, cwd=folder
    )
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait()


def lock(folder):
    (folder / ".snakemake/locks").mkdir(parents=True, exist_ok=True)
    (folder / ".snakemake/locks/0.input.lock").write_text("x")


def test_a_living_driver_is_named(other):
    assert driver.other_driver().startswith(f"process {other.pid} on ")


def test_a_killed_driver_is_forgotten_and_its_lock_cleared(folder, other):
    lock(folder)
    assert driver.is_locked()
    other.kill()
    other.wait()
    assert driver.other_driver() == ""
    assert driver.clear_dead_lock() is True
    assert not driver.is_locked()
    assert driver.clear_dead_lock() is False


def test_second_hold_does_not_wait_or_fail(folder, other):
    driver.hold()
    assert driver.other_driver().startswith(f"process {other.pid} ")


def test_no_driver_where_nothing_was_ever_run(folder):
    assert driver.other_driver() == ""


def test_jobs_find_this_python_and_the_package_first(folder, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    for variable in ("FEEDRATE_DRIVER_PID", "FEEDRATE_PUSH_TO"):
        monkeypatch.setenv(variable, "")
    for _ in range(2):
        driver.equip_jobs(folder / "workflow", "me/models")
    assert os.environ["PATH"] == f"{Path(sys.executable).parent}:/usr/bin"
    assert os.environ["PYTHONPATH"] == f"{folder / 'workflow'}:/elsewhere"
    assert os.environ["FEEDRATE_PUSH_TO"] == "me/models"
    assert os.environ["FEEDRATE_DRIVER_PID"] == str(os.getpid())
