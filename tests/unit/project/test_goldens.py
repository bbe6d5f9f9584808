"""The golden data of tests/golden that golden/freeze.py writes: its README says what a difference
means."""

import contextlib
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


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """By golden project, its folder with all made again, and the plans of its studies."""
    roots = {kept: tmp_path_factory.mktemp("golden") / "made" for kept in freeze.PROJECTS}
    return {kept: (root, freeze.make_again(kept, root)) for kept, root in roots.items()}


@pytest.mark.parametrize("name", freeze.RESULT_FILES)
@pytest.mark.parametrize("kept", freeze.PROJECTS, ids=lambda kept: kept.name)
def test_results_are_the_same(made, kept, name):
    root, plans = made[kept]
    files = [f"results/{plan.name}/{name}" for plan in plans]
    found = {file: list(freeze.differences(kept / file, root / file)) for file in files}
    assert not {file: lines for file, lines in found.items() if lines}


@pytest.mark.parametrize("kept", freeze.PROJECTS, ids=lambda kept: kept.name)
def test_reports_show_the_same_numbers(made, kept):
    root, plans = made[kept]
    differences = {}
    with contextlib.chdir(root):
        for plan in plans:
            old = freeze.compared_facts(read(freeze.FACTS / f"{plan.name}.json"))
            new = freeze.compared_facts(freeze.facts_of(plan))
            for fact in old.keys() | new.keys():
                if old.get(fact) != new.get(fact):
                    differences[f"{plan.name}: {fact}"] = (old.get(fact), new.get(fact))
    assert not differences
