"""What else differs between two sets of results."""

from pathlib import Path

import pytest

from feedrate.config.study import Thresholds
from feedrate.results.comparison import (
    SOFTWARE,
    Results,
    compare,
    moved_between,
    read_results,
)
from result_sets import AFTER, PACKAGES, runs, write_set


def sets(tmp_path, new=None, before=None, **after):
    """Two sets of one cell: in the second with other values in its rows, and other software."""
    old = write_set(
        tmp_path / "before", runs(0, 10.0, 10.0), **({"packages": PACKAGES} | (before or {}))
    )
    cell = runs(0, 10.0, 10.0, day=AFTER, **(new or {}))
    return read_results(old), read_results(
        write_set(tmp_path / "results", cell, **({"packages": PACKAGES} | after))
    )


def only_row(found):
    (row,) = compare(*found, Thresholds())
    return row


def told(found):
    """What differs, with the values before and after."""
    return {what: (old, new) for what, old, new, _ in moved_between(compare(*found, Thresholds()))}


def moved(before, after):
    return moved_between(compare(read_results(before), read_results(after), Thresholds()))


def test_versions_that_differ_are_told(tmp_path):
    packages = {"torch": "2.9.0", "numpy": "2.4.6", "triton": "3.5.0"}
    found = sets(tmp_path, packages=packages)
    assert only_row(found)["software"] == "torch 2.8.0 to 2.9.0;triton none to 3.5.0"
    assert told(found) == {"torch": ("2.8.0", "2.9.0"), "triton": ("none", "3.5.0")}


def test_driver_firmware_and_environment_variables_count_too(tmp_path):
    before = {"driver": "570.1", "firmware": {"microcode": "0x1"}, "environment": {"OMP": "2"}}
    found = sets(tmp_path, before=before, driver="580.1", firmware={"microcode": "0x2"})
    assert told(found) == {
        "driver": ("570.1", "580.1"),
        "firmware microcode": ("0x1", "0x2"),
        "variable OMP": ("2", "none"),
    }


def test_devices_that_share_a_difference_are_named_together(tmp_path):
    def cells(day, **changes):
        own = ({"device": device} for device in ("cpu", "cpu-x2"))
        return [runs(0, 10.0, day=day, **device, **changes) for device in own]

    other = runs(1, 10.0, device="h100", host="node9")
    before = write_set(tmp_path / "before", *cells(1), runs(1, 10.0, device="h100"))
    after = write_set(tmp_path / "results", *cells(2, host="node2", cores_granted=4), other)
    assert moved(before, after) == [
        ("host", "node1", "node2", "cpu, cpu-x2"),
        ("cores_granted", "2", "4", "cpu, cpu-x2"),
        ("host", "node1", "node9", "h100"),
    ]


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
        ({"source_digest": "", "host": "", "spec_digest": ""}, ""),
    ],
)
def test_what_differs_of_a_cell(tmp_path, changes, words):
    assert only_row(sets(tmp_path, changes))["differs"] == words


def test_specs_are_held_against_each_other_repeat_by_repeat():
    def differing(before, after):
        (row,) = compare(
            *(Results(Path("results.csv"), rows) for rows in (before, after)), Thresholds()
        )
        return row["differs"]

    first, second, third = runs(0, 10.0, 10.0, 10.0)
    assert differing([first, second], [second, third]) == ""
    assert differing([first, second], [second | {"spec_digest": "another"}]) == "spec"
    assert differing([first], [second]) == ""


@pytest.mark.parametrize(
    "line", ["{}", "[1", '{"provenance": {"packages": 1}}', '{"provenance": {}}', None]
)
def test_a_record_that_is_not_there_or_not_the_runs_tells_nothing(tmp_path, line):
    write_set(tmp_path, runs(0, 10.0), packages=PACKAGES)
    file = next(tmp_path.rglob("records.jsonl"))
    file.unlink() if line is None else file.write_text(line)
    assert read_results(tmp_path).started[0][SOFTWARE] is None
