import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake.exceptions import WorkflowError

from feedrate.config.project import load_project
from feedrate.config.values import read_yaml
from feedrate.core import variables
from feedrate.flow import driver

ROOT = Path(__file__).resolve().parents[3]

HOLD = (
    "import sys, time; from feedrate.flow import driver; driver.hold(); print('held', flush=True); "
)


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


def test_a_second_driver_is_refused_but_for_the_first_ones_helper(other, monkeypatch):
    with pytest.raises(WorkflowError, match=f"process {other.pid}"):
        driver.check_alone()
    monkeypatch.setenv(variables.LOST, "causes.json")
    driver.check_alone()


def test_a_killed_driver_is_forgotten_and_its_lock_cleared(folder, other):
    lock(folder)
    assert any(driver.SNAKEMAKE_LOCKS.glob("*"))
    other.kill()
    other.wait()
    assert driver.other_driver() == ""
    assert driver.clear_dead_lock() is True
    assert not any(driver.SNAKEMAKE_LOCKS.glob("*"))
    assert driver.clear_dead_lock() is False


def test_a_driver_does_not_take_itself_for_another(folder):
    driver.hold()
    assert (driver.other_driver(), driver.occupied()) == ("", "")
    driver._held.close()


def mark(folder, host="login7"):
    (folder / ".snakemake").mkdir(exist_ok=True)
    (folder / driver.LOCK).write_text(json.dumps({"pid": 4711, "host": host, "since": 1.8e9}))


def test_a_driver_on_another_host_that_holds_the_mark_is_named_with_its_host(folder, other):
    mark(folder)
    assert driver.other_driver().startswith("process 4711 on login7 since ")


def test_whether_a_driver_on_another_host_lives_is_not_guessed(folder):
    mark(folder)
    lock(folder)
    assert driver.other_driver() == "", "a lock of another host may not be seen from here"
    assert driver.unseen_driver().startswith("process 4711 on login7 since ")


def test_it_is_not_taken_for_dead_by_a_later_call_on_this_host(folder):
    mark(folder)
    lock(folder)
    driver.hold()
    assert driver.unseen_driver().startswith("process 4711 on login7 ")
    assert driver._held is None


def test_without_a_lock_of_snakemake_it_has_ended(folder):
    mark(folder)
    assert driver.unseen_driver() == ""
    driver.hold()
    assert json.loads((folder / driver.LOCK).read_text())["host"] == socket.gethostname()
    driver._held.close()


def test_a_driver_that_was_killed_on_this_host_is_known_to_be_dead(folder):
    mark(folder, socket.gethostname())
    lock(folder)
    assert (driver.other_driver(), driver.unseen_driver()) == ("", "")


@pytest.mark.parametrize("text", ["", '{"pid": 1}'])
def test_a_mark_that_cannot_be_read_stops_nobody(folder, text):
    lock(folder)
    (folder / driver.LOCK).write_text(text)
    assert (driver.other_driver(), driver.unseen_driver()) == ("", "")


@pytest.fixture
def environment(monkeypatch):
    for word in (
        "DRIVER_PID",
        "DRIVER_SINCE",
        "PUSH_TO_HUB",
        "REPORT_TO",
        "MODEL_PATTERNS",
        "RETRIES",
        "FORCED",
        "TIMEOUTS",
        "LADDERS",
    ):
        monkeypatch.setenv(f"FEEDRATE_{word}", "")
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    return os.environ


def project(**changes):
    values = read_yaml(ROOT / "config/config.yaml") | changes
    return load_project(ROOT, values)


def test_jobs_find_this_python_and_the_package_first(folder, environment):
    for _ in range(2):
        driver.equip_jobs(folder / "workflow", project(push_to_hub="me/models"))
    assert environment["PATH"] == f"{Path(sys.executable).parent}:/usr/bin"
    assert environment["PYTHONPATH"] == f"{folder / 'workflow'}:/elsewhere"
    assert environment["FEEDRATE_PUSH_TO_HUB"] == "me/models"


def test_jobs_are_told_how_long_they_may_take(folder, environment):
    driver.equip_jobs(folder, project(studies=["bridgetower-inference"], devices=["cpu"]))
    told = json.loads(environment[variables.TIMEOUTS])
    assert told == {"bridgetower-inference": {"cpu": 60.0}}


def test_jobs_are_told_the_share_of_bad_images_that_each_dataset_may_have(folder, environment):
    mine = {"mine": {"source": "folder", "path": "a", "max_bad_share": 0.3}}
    driver.equip_jobs(folder, project(dataset="mine", datasets=mine))
    assert json.loads(environment[variables.BAD_SHARES])["mine"] == 0.3


def test_a_target_is_taken_out_of_the_command(monkeypatch):
    words = ["snakemake", "--profile", "plan", "plan", "--config", "devices=[h100, cpu]"]
    monkeypatch.setattr(sys, "argv", words)
    rest = "--profile plan --config 'devices=[h100, cpu]'"
    assert driver.arguments_without("plan") == rest


@pytest.mark.parametrize(
    ("forced", "said"),
    [({}, ""), ({"forcerun": {"train_cpu"}}, "1")],
)
def test_jobs_are_told_how_they_are_tried(environment, forced, said):
    plain = {"forceall": False, "forcetargets": False, "forcerun": set()}
    driver.tell_jobs(
        SimpleNamespace(
            execution_settings=SimpleNamespace(retries=2),
            dag_settings=SimpleNamespace(**plain | forced),
        )
    )
    assert environment["FEEDRATE_RETRIES"] == "2"
    assert environment["FEEDRATE_FORCED"] == said
    assert float(environment["FEEDRATE_DRIVER_SINCE"]) > 1.7e9
