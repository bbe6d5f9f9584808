"""`feedrate first-hour` on the CPU: real stages, and stages for which there is no time."""

import os
import re
import signal
import time

import psutil
import yaml
from mini_project import DATA

from selftest_parts import QUICK, some_parts

CONFIG = {
    "studies": ["mini"],
    "devices": ["detected"],
    "first_hour": ["mini:workers=1", "mini:decode=device", "selftest", "mini:workers=7"],
    "protocol_at_most": {"steps": 3, "warmup_steps": 1, "ceiling_s": 0.05, "timeout_min": 4},
    "selftest_parts": ["baseline"],
}
LINE = re.compile(r" *(\d+) s  (left out|no time|\w+) +(.+?): (.*)")


STATUS = "results/first-hour.txt"


def configure(project, **changes):
    file = project.root / "config/first-hour.yaml"
    file.write_text(yaml.safe_dump(CONFIG | changes))


def by_stage(status):
    """Outcome and what a line says, by stage."""
    rows = [LINE.fullmatch(line) for line in status.splitlines()]
    return {row[3]: (row[2], row[4]) for row in rows}


def lines(project, *arguments):
    """The lines of the stages, and the command that has ended."""
    configure(project)
    done = project.call("feedrate", "first-hour", *arguments)
    status = (project.root / STATUS).read_text()
    assert status in done.stdout
    return by_stage(status), done


def until(process, is_so, timeout_s=200):
    """Wait until something is so, while a process runs."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def working_in(folder):
    """The processes whose working folder it is."""
    processes = psutil.process_iter(["cwd"])
    return [process for process in processes if process.info["cwd"] == str(folder)]


def test_the_stages_run_in_order_and_the_report_shows_what_was_measured(ready):
    some_parts(ready.root / "config", "baseline", **QUICK)
    config = yaml.safe_load((ready.root / "config/config.yaml").read_text())
    ready.config(datasets=config["datasets"] | {"generated": DATA})
    told, done = lines(ready, "--minutes", "6")
    stages = ["facts", "doctor", "data", "mini:workers=1", "selftest"]
    assert list(told) == [*stages, "mini:decode=device", "mini:workers=7"], done.stdout
    assert {told[stage][0] for stage in stages} <= {"ok", "provisional"}, done.stdout
    assert done.returncode == 0
    assert "so the CPU is measured" in told["facts"][1]
    assert re.match(r"[\d.]+ samples/s", told["mini:workers=1"][1])
    assert re.search(r"\b2 passed\b", told["selftest"][1])
    assert told["mini:decode=device"] == ("left out", "cpu lacks decode_device")
    assert "levels: 0, 1" in told["mini:workers=7"][1]
    spec = ready.record("workers=1~decode=host")["spec"]
    assert (spec["protocol"]["steps"], spec["protocol"]["warmup_steps"]) == (3, 1)
    assert (ready.root / "report.html").is_file()


def test_what_did_not_fit_is_listed_with_its_command(ready):
    told, done = lines(ready, "--minutes", "0.01")
    assert done.returncode == 0
    assert told["facts"][0] == "ok"
    outcome, text = told["doctor, data, mini:workers=1, selftest"]
    assert outcome == "no time"
    assert text.startswith("later: python -m feedrate run --cell mini:workers=1 --profile ")
    assert not (ready.root / "runs").exists()


def test_a_signal_stops_the_stage_and_its_jobs_and_the_page_shows_what_there_is(ready):
    configure(ready, first_hour=["mini:workers=1", "mini:workers=0", "selftest"])
    process, page = ready.popen("feedrate", "first-hour"), ready.root / "report.html"
    run = "runs/mini/cpu/workers=0~decode=host/.rep*"
    until(process, lambda: any(ready.root.glob(run)))
    page.unlink()
    there = working_in(ready.root)
    for _ in range(2):  # as make's children get it: from the sender, and from make
        os.kill(process.pid, signal.SIGTERM)
        time.sleep(0.1)
    output, _ = process.communicate(timeout=100)
    told = by_stage((ready.root / STATUS).read_text())
    assert told["mini:workers=0"][0] == "stopped", output
    assert told["selftest"][0] == "no time"
    assert told["selftest"][1].startswith("later: python -m feedrate selftest --profile ")
    assert process.returncode == 130
    assert "Traceback" not in output
    assert page.is_file(), output
    assert ready.record("workers=1~decode=host")["status"] != "missing"
    assert len(there) > 2
    assert not psutil.wait_procs(there, timeout=10)[1]
