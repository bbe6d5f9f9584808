"""`feedrate first-hour` on the CPU: real stages, and stages for which there is no time."""

import re

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


def lines(project, *arguments):
    """The lines of the stages: outcome and what they say, by stage."""
    file = project.root / "config/first-hour.yaml"
    file.write_text(yaml.safe_dump(CONFIG))
    done = project.call("feedrate", "first-hour", *arguments)
    status = (project.root / "results/first-hour.txt").read_text()
    assert status in done.stdout
    rows = [LINE.fullmatch(line) for line in status.splitlines()]
    return {row[3]: (row[2], row[4]) for row in rows}, done


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
