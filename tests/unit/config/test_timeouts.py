"""How long a job may take is told to it, and is no part of its run."""

import json

import pytest

from feedrate.config.plan import make_plan, timeouts_min
from feedrate.config.spec import TIMEOUT_MIN, timeout_min
from feedrate.core import variables
from tiny_spec import tiny_spec

STUDY = "bridgetower-inference"
HALF = ("timeout_min: 60", "timeout_min: 30")


def test_more_time_leaves_every_run_as_it_is(copy):
    before = make_plan(copy.load(studies=[STUDY])).runs
    changed = copy.edit(f"studies/{STUDY}.yaml", HALF).load(studies=[STUDY], devices=["cpu"])
    assert make_plan(changed).runs == {k: spec for k, spec in before.items() if k[1] == "cpu"}
    assert timeouts_min(changed) == {STUDY: {"cpu": 30.0}}


@pytest.mark.parametrize(
    ("told", "minutes"),
    [
        ({"study": {"cpu": 1.5, "h100": 9}, "other": {"cpu": 2}}, 1.5),
        ({"study": {"h100": 9}}, TIMEOUT_MIN),
        ({}, TIMEOUT_MIN),
    ],
)
def test_a_job_knows_its_own(told, minutes):
    assert timeout_min(tiny_spec(), {variables.TIMEOUTS: json.dumps(told)}) == minutes


def test_a_job_that_nobody_tells_has_what_a_study_has_by_default():
    assert timeout_min(tiny_spec(), {}) == TIMEOUT_MIN


def test_a_time_that_is_none_is_refused_by_its_key(copy):
    copy.edit(f"studies/{STUDY}.yaml", ("timeout_min: 60", "timeout_min: 0"))
    assert f"config/studies/{STUDY}.yaml: protocol.timeout_min: 0" in copy.error(studies=[STUDY])
