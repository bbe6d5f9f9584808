"""The golden data of tests/golden that golden/freeze.py writes: its README says what a difference
means."""

import json

import msgspec
import pytest

from golden import freeze


def read(file):
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def plan():
    return freeze.whole_plan()


def test_every_spec_is_the_same(plan):
    """By study and device: the number of runs and their digest."""
    old, new = read(freeze.DIGESTS), freeze.spec_digests(plan, read(freeze.DEFAULTS))
    assert new.keys() == old.keys()
    differences = {
        f"{study} on {device}": (old[study].get(device), new[study].get(device))
        for study in old
        for device in {**old[study], **new[study]}
        if old[study].get(device) != new[study].get(device)
    }
    assert not differences


@pytest.mark.parametrize("run", read(freeze.EXAMPLES))
def test_examples_of_specs_are_the_same(plan, run):
    usual = read(freeze.DEFAULTS)
    study, device, cell, repeat = run.split("/")
    new = msgspec.to_builtins(plan.runs[study, device, cell, int(repeat)])
    old = read(freeze.EXAMPLES)[run]
    assert freeze.compared(new, usual) == freeze.compared(old, usual)


def test_a_spec_names_no_setting_that_is_absent(plan):
    spec = next(iter(plan.runs.values()))
    assert "profile_steps" not in msgspec.to_builtins(spec)["protocol"]
    traced = msgspec.structs.replace(spec.protocol, profile_steps=3)
    traced = msgspec.to_builtins(msgspec.structs.replace(spec, protocol=traced))
    assert msgspec.convert(traced, type(spec)).protocol.profile_steps == 3
