"""What else differs between two sets of results."""

import json
import shutil

import pytest

from feedrate.config.study import Thresholds
from feedrate.results.comparison import (
    SOFTWARE,
    Results,
    compare,
    moved_between,
    read_results,
    run_frame,
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
    return {what: (old, new) for what, old, new, _ in moved_between(*found)}


def test_equal_software_is_not_told(tmp_path):
    found = sets(tmp_path)
    assert only_row(found)["software"] == ""
    assert told(found) == {}


def test_versions_that_differ_are_told(tmp_path):
    packages = {"torch": "2.9.0", "numpy": "2.4.6", "triton": "3.5.0"}
    found = sets(tmp_path, packages=packages)
    assert only_row(found)["software"] == "torch 2.8.0 to 2.9.0;triton none to 3.5.0"
    assert told(found) == {"torch": ("2.8.0", "2.9.0"), "triton": ("none", "3.5.0")}


def test_driver_python_and_platform_count_where_they_are_known(tmp_path):
    before = {"driver": "570.1", "platform": "Linux 6.1"}
    found = sets(tmp_path, before=before, driver="580.1", platform="Linux 6.1", python="3.12")
    assert told(found) == {"driver": ("570.1", "580.1")}


def test_firmware_that_differs_is_told_where_both_know_it(tmp_path):
    before = {"firmware": {"microcode": "0x1", "Video BIOS": "96.00"}}
    found = sets(tmp_path, before=before, firmware={"microcode": "0x2"})
    assert told(found) == {"firmware microcode": ("0x1", "0x2")}


def test_environment_variables_that_differ_are_told_where_both_know_theirs(tmp_path):
    before = {"environment": {"OMP_NUM_THREADS": "2", "NCCL_P2P_DISABLE": "1"}}
    found = sets(tmp_path / "known", before=before, environment={"OMP_NUM_THREADS": "4"})
    assert told(found) == {
        "variable OMP_NUM_THREADS": ("2", "4"),
        "variable NCCL_P2P_DISABLE": ("1", "none"),
    }
    assert told(sets(tmp_path / "unknown", before=before)) == {}


def test_a_job_that_told_no_packages_has_not_lost_them_all(tmp_path):
    found = sets(tmp_path, packages={})
    assert all(run[SOFTWARE] == {} for run in found[1].started)
    assert told(found) == {}


def test_runs_of_several_versions_name_them_all(tmp_path):
    old, new = sets(tmp_path, packages=PACKAGES | {"torch": "2.9.0"})
    new.runs.at[0, SOFTWARE] = PACKAGES
    assert told((old, new)) == {"torch": ("2.8.0", "2.8.0, 2.9.0")}


def test_devices_that_share_a_difference_are_named_together(tmp_path):
    def cells(day, **changes):
        own = ({"device": device} for device in ("cpu", "cpu-x2"))
        return [runs(0, 10.0, day=day, **device, **changes) for device in own]

    other = runs(1, 10.0, device="h100", host="node9")
    before = write_set(tmp_path / "before", *cells(1), runs(1, 10.0, device="h100"))
    after = write_set(tmp_path / "results", *cells(2, host="node2", cores_granted=4), other)
    assert moved_between(read_results(before), read_results(after)) == [
        ("host", "node1", "node2", "cpu, cpu-x2"),
        ("cores granted", "2", "4", "cpu, cpu-x2"),
        ("host", "node1", "node9", "h100"),
    ]


def test_what_cells_of_one_side_were_measured_with_is_no_difference(tmp_path):
    before = write_set(tmp_path / "before", runs(0, 10.0), runs(1, 10.0, host="node2"))
    after = write_set(tmp_path / "results", runs(0, 10.0, day=AFTER))
    assert moved_between(read_results(before), read_results(after)) == []


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
            *(Results(None, run_frame(rows)) for rows in (before, after)), Thresholds()
        )
        return row["differs"]

    first, second, third = runs(0, 10.0, 10.0, 10.0)
    assert differing([first, second], [second, third]) == ""
    assert differing([first, second], [second | {"spec_digest": "another"}]) == "spec"
    assert differing([first], [second]) == ""


def test_records_are_those_beside_the_results_and_not_the_clones_newer_ones(tmp_path, monkeypatch):
    """A copy's rows name records by the path from the clone's root."""
    monkeypatch.chdir(tmp_path)
    clone = write_set(tmp_path / "results", runs(0, 10.0), packages=PACKAGES)
    shutil.copytree(clone, tmp_path / "kept")
    write_set(clone, runs(0, 10.0, day=AFTER), packages=PACKAGES | {"torch": "2.9.0"})
    assert [run[SOFTWARE] for run in read_results(tmp_path / "kept").started] == [PACKAGES]
    assert told((read_results(tmp_path / "kept"), read_results(tmp_path))) == {
        "torch": ("2.8.0", "2.9.0")
    }


def test_records_of_one_studys_results_lie_a_folder_higher(tmp_path, monkeypatch):
    folder = write_set(tmp_path / "kept", runs(0, 10.0), packages=PACKAGES)
    (folder / "loading").mkdir(exist_ok=True)
    (folder / "results.csv").rename(folder / "loading/results.csv")
    assert read_results(folder / "loading").started[0][SOFTWARE] == PACKAGES
    monkeypatch.chdir(folder / "loading")
    assert read_results(folder / "loading/results.csv").started[0][SOFTWARE] == PACKAGES


@pytest.mark.parametrize(
    "record", ["{}", "[1", '{"provenance": {"packages": 1}}', '{"provenance": {}}', None]
)
def test_a_record_that_is_not_there_or_not_the_runs_tells_nothing(tmp_path, record):
    write_set(tmp_path, runs(0, 10.0), packages=PACKAGES)
    file = next(tmp_path.rglob("record.json"))
    file.unlink() if record is None else file.write_text(record)
    assert read_results(tmp_path).started[0][SOFTWARE] is None


@pytest.mark.parametrize("path", ["", "../results/record.json", "/etc/hostname"])
def test_a_path_outside_results_is_not_followed(tmp_path, path):
    write_set(tmp_path, runs(0, 10.0), packages=PACKAGES)
    (row,) = runs(0, 10.0, record=path)
    write_set(tmp_path, [row])
    assert read_results(tmp_path).started[0][SOFTWARE] is None


def test_a_record_of_another_version_of_feedrate_tells_its_packages(tmp_path):
    write_set(tmp_path, runs(0, 10.0), packages=PACKAGES)
    file = next(tmp_path.rglob("record.json"))
    record = json.loads(file.read_text()) | {"schema_version": 7, "a_new_field": [1]}
    file.write_text(json.dumps(record))
    assert read_results(tmp_path).started[0][SOFTWARE] == PACKAGES
