"""What else differs between two sets of results."""

import pytest

from feedrate.config.study import Thresholds
from feedrate.results.comparison import compare, differences
from result_sets import AFTER, PACKAGES, runs


def changed(before=None, **after):
    """What differs between two sets of one cell, with other facts about the runs of each."""
    old = runs(0, 10.0, 10.0, packages=PACKAGES, **(before or {}))
    new = runs(0, 10.0, 10.0, day=AFTER, **({"packages": PACKAGES} | after))
    (row,) = compare(old, new, Thresholds())
    return row


def test_versions_that_differ_are_named():
    row = changed(packages={"torch": "2.9.0", "numpy": "2.4.6", "triton": "3.5.0"})
    assert row["software"] == "torch 2.8.0 to 2.9.0;triton none to 3.5.0"
    assert row["changes"] == {"torch": ("2.8.0", "2.9.0"), "triton": ("none", "3.5.0")}


def test_driver_firmware_and_environment_variables_count_too():
    before = {"driver": "570.1", "firmware": {"microcode": "0x1"}, "environment": {"OMP": "2"}}
    row = changed(before, driver="580.1", firmware={"microcode": "0x2"})
    assert row["changes"] == {
        "driver": ("570.1", "580.1"),
        "firmware microcode": ("0x1", "0x2"),
        "environment OMP": ("2", "none"),
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"spec_digest": "another"}, "spec"),
        ({"data_digest": "data 2"}, "data"),
        ({"source_digest": "code 2"}, "code"),
        ({"device_model": "a new cpu"}, "device_model"),
        ({"host": "node2", "commit": "b" * 40}, "host;commit"),
        ({"cores_granted": 4, "source_digest": "code 2"}, "code;cores_granted"),
        ({"source_digest": "", "host": "", "spec_digest": "", "packages": None}, ""),
    ],
)
def test_what_differs_of_a_cell(changes, words):
    row = changed(**changes)
    assert row["differs"] == words
    assert row["software"] == ""


def test_specs_are_held_against_each_other_repeat_by_repeat():
    first, second, third = runs(0, 10.0, 10.0, 10.0)
    assert differences([first, second], [second, third]) == {}
    other = second | {"spec_digest": "another"}
    assert list(differences([first, second], [other])) == ["spec 2"]
    assert differences([first], [second]) == {}
