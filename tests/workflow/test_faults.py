"""What is killed, fails or is asked for twice: nothing is lost, nothing is half-written."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from mini_project import MINI, UNTRAINED, interpreter, make_project

from faults import fault


def wait_for(condition, timeout_s=300.0, what="condition"):
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {timeout_s} s for {what}")


def processes_of(project):
    """Processes that work for the project: by working directory or by what they were told."""
    found = []
    for process in psutil.process_iter(["cwd", "cmdline", "status"]):
        told = " ".join(process.info["cmdline"] or [])
        here = str(process.info["cwd"] or "").startswith(str(project.root))
        if process.info["status"] != psutil.STATUS_ZOMBIE and (here or str(project.root) in told):
            found.append(process)
    return found


def training_step(project, earlier=()):
    """The events of a workplace that has made at least one step, but not of these."""
    for events in project.root.glob("runs/mini/cpu/*/.rep*/events.jsonl"):
        if events not in earlier and '"step"' in events.read_text():
            return events
    return None


def no_half_written_result(project):
    for run in project.root.glob("runs/mini/cpu/*/rep*/"):
        assert (run / "outcome.json").exists() or not list(run.iterdir())
    assert not list(project.root.glob("results/**/*.part"))


ONE_RUN = {"factors": MINI["factors"] | {"workers": {"sets": "loader.workers", "levels": [0]}}}
LASTING = {"protocol": MINI["protocol"] | {"steps": 10_000, "ceiling_s": 0}}
"""A run that lasts until it is killed."""


@pytest.fixture
def clean_end():
    """Ends what a test that failed has left."""
    projects = []
    yield projects.append
    for project in projects:
        for process in processes_of(project):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.fixture
def cold(tmp_path, clean_end):
    """A new project, in which all processes are new interpreters as for a user; see `waiting`."""
    return waiting(make_project(tmp_path / "cold", cold=True), clean_end)


@pytest.fixture
def slow(ready, clean_end):
    """A prepared project; see `waiting`."""
    return waiting(ready, clean_end)


def waiting(project, clean_end):
    """The project, with one run. While its file `waits` exists, training is a new interpreter that
    only says that it has made a step, and then waits."""
    clean_end(project)
    waits = project.root / "waits"
    held = UNTRAINED.format(python=sys.executable)
    start = f'if [ -e {waits} ]; then {held}; fi; exec {{python}} "$@"'
    python = interpreter(project.root, "cpu", start, project.python)
    project.device("cpu", software={"python": str(python)})
    project.study(**ONE_RUN)
    waits.touch()
    return project


def stop(project, way, wrapper):
    """End a run in this way; return what it has printed."""
    if way == "Ctrl-C":
        os.killpg(wrapper.pid, signal.SIGINT)
    else:
        wrapper.kill()
    output, _ = wrapper.communicate(timeout=60)
    wait_for(lambda: not processes_of(project), 60, "all processes to end")
    no_half_written_result(project)
    return output


def test_however_a_run_is_stopped_nothing_keeps_running_and_the_same_command_goes_on(cold):
    """Ctrl-C reaches real training. At the end, a whole workflow of new interpreters has run."""
    earlier = []
    for way in ("kill -9", "Ctrl-C"):
        if way == "Ctrl-C":
            (cold.root / "waits").unlink()
            cold.study(**ONE_RUN, **LASTING)
        started = cold.popen("feedrate", "run", start_new_session=True)
        earlier.append(wait_for(lambda: training_step(cold, earlier), what="a training step"))
        output = stop(cold, way, started)
        if way == "Ctrl-C":
            assert started.returncode == 130
            assert "run the same command to continue" in output
            assert "Traceback" not in output
    cold.study(**ONE_RUN)
    done = cold.run()
    row = fault("killed driver", "local")
    assert done.returncode == row.exit_code, done.stdout
    assert (cold.root / "report.html").exists() is row.report
    assert len(list(cold.root.glob("runs/mini/cpu/*/rep*/"))) == 1
    assert cold.warmed().planned() == {}


def second_driver_is_told(project):
    second = project.run()
    assert second.returncode == fault("second driver", "local").exit_code
    assert "another call works in this folder" in second.stdout
    assert len(second.stdout.splitlines()) == 1
    plain = project.call("snakemake", "--profile", "profiles/local")
    assert plain.returncode == fault("second driver", "slurm").exit_code
    assert "another call works in this folder" in plain.stdout
    assert "--unlock" not in plain.stdout, "the lock is not to be taken from a living driver"


def test_a_second_driver_is_told_and_a_killed_training_is_a_failed_record_and_tried_again(slow):
    wrapper = slow.popen("feedrate", "run")
    wait_for(lambda: training_step(slow), what="a training step")
    second_driver_is_told(slow)
    workers = [p for p in processes_of(slow) if "worker" in p.cmdline()]
    assert workers
    workers[0].kill()
    output, _ = wrapper.communicate(timeout=300)
    row = fault("killed worker", "local")
    assert wrapper.returncode == row.exit_code
    failed = slow.record("workers=0~decode=host")
    assert failed["status"] == row.status
    assert "signal 9" in failed["cause"]
    assert failed["cell"] in output
    assert (slow.root / "report.html").exists() is row.report
    assert slow.planned()["train_cpu"] == 1
    (slow.root / "waits").unlink()
    again = slow.run()
    assert again.returncode == 0, again.stdout
    assert slow.record(failed["cell"])["status"] == "ok"


def test_full_disk_is_reported_as_such(ready):
    """runs/ is a file system of 24 kB: the job's error names the full disk."""
    ready.study(**ONE_RUN)
    target = ready.root / "runs"
    target.mkdir(exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", str(target)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        done = ready.run()
        assert done.returncode == fault("disk full", "local").exit_code
        assert "No space left" in done.stdout or "disk is full" in done.stdout
    finally:
        subprocess.run(["umount", "-l", str(target)], check=True)
        assert Path(target).is_dir()


def test_an_absent_device_stops_the_call_before_anything_is_fetched(project):
    project.config(devices=["cpu", "h100"])
    done = project.run()
    assert done.returncode != 0
    assert "Traceback" not in done.stdout
    assert "Nothing was started" in done.stdout
    assert "h100: GPUs: " in done.stdout
    assert not (project.root / "resources").exists()
    assert not (project.root / "runs").exists()


def test_what_fails_is_a_record_and_the_others_and_the_report_go_on(ready):
    """A cell with larger batches than the data, and a device that its job does not find."""
    batch = {"sets": "train.batch_size", "levels": [4, 4000]}
    batch["requires"] = {"4000": "large_models"}
    ready.study(factors={"batch": batch}, baseline={"batch": 4})
    ready.device("cpu", capabilities=["fp32", "large_models"])
    ready.device("cpu-x2", count=1, capabilities=["fp32"], model_pattern="No such CPU")
    ready.config(devices=["cpu", "cpu-x2"])
    done = ready.run()
    row = fault("lost device", "local")
    assert done.returncode == row.exit_code
    assert "Traceback" not in done.stdout
    assert ready.record("batch=4")["status"] == "ok"
    failed, lost = ready.record("batch=4000"), ready.record("batch=4", device="cpu-x2")
    assert failed["status"] == "failed"
    assert "batch" in failed["cause"]
    assert lost["status"] == row.status
    assert "No such CPU" in lost["cause"]
    for record in (failed, lost):
        assert record["cell"] in done.stdout
        assert record["cause"] in done.stdout
    assert (ready.root / "report.html").exists() is row.report
    assert "batch=4000" in (ready.root / "report.html").read_text()
