"""Rows of results: one for each run, and one for each cell that is not supported."""

import msgspec
import pytest
from collected_rows import W0, W1, W2, cells_from, rows_of, shared
from msgspec.structs import replace
from record_builder import make_record, make_spec, runs_of

from feedrate.results.record import Check


def test_one_row_a_run_and_one_a_cell_that_is_not_supported():
    rows, _ = rows_of(runs_of(1, [10.0, 11.0]))
    assert [(r["cell"], r["repeat"], r["status"]) for r in rows] == [
        (W1, 1, "ok"),
        (W1, 2, "ok"),
        ("workers=1~decode=device", 1, "unsupported"),
    ]
    assert rows[2]["cause"] == "Not tried: it needs decode device."
    assert rows[0]["workers"] == 1
    assert rows[0]["batch_size"] == 4
    assert rows[0]["model"] == "bridgetower-tiny"
    assert rows[0]["trainer_samples_per_s"] == 10.0


def test_a_cell_that_shares_the_runs_of_another_has_its_numbers():
    rows, settings = rows_of(runs_of(1, [10.0, 12.0]), unsupported=[], shared=[shared()])
    assert [(r["cell"], r["workers"], r["repeat"], r["measured_as"]) for r in rows] == [
        (W1, 1, 1, None),
        (W1, 1, 2, None),
        (W2, 2, 1, W1),
        (W2, 2, 2, W1),
    ]
    assert [row["folder"] for row in rows[:2]] == [row["folder"] for row in rows[2:]]
    cells = {cell["cell"]: cell for cell in cells_from(rows, settings)}
    assert cells[W2]["samples_per_s"] == cells[W1]["samples_per_s"] == 11.0
    assert (cells[W1]["measured_as"], cells[W2]["measured_as"]) == (None, W1)


def test_rows_stand_in_the_order_of_the_configuration():
    records = [*runs_of(2, [3.0]), *runs_of(0, [1.0, 2.0])[::-1]]
    rows, _ = rows_of(records, unsupported=[])
    assert [(r["workers"], r["repeat"]) for r in rows] == [(0, 1), (0, 2), (2, 1)]


def test_numbers_of_an_invalid_run_stay_in_its_row_and_out_of_all_else():
    records = [
        *runs_of(0, [10.0]),
        make_record(99.0, spec=make_spec(0, repeat=2), status="invalid", cause="MFU is 120%."),
    ]
    rows, settings = rows_of(records)
    assert rows[1]["samples_per_s"] == 99.0
    cell = cells_from(rows, settings)[0]
    assert (cell["samples_per_s"], cell["runs"], cell["ok_runs"]) == (10.0, 2, 1)
    assert (cell["status"], cell["invalid_runs"]) == ("ok", 1)
    assert cell["cause"] == "MFU is 120%.", "why one of its runs does not count"


def disturbed_run(rate, repeat, *failed):
    checks = [Check(name=name, passed=False, detail="…") for name in failed]
    spec = make_spec(0, repeat=repeat)
    record = make_record(rate, spec=spec, status="invalid", cause="…")
    return replace(record, checks=checks)


def test_runs_that_were_only_disturbed_give_a_cell_without_ok_runs_a_provisional_rate():
    disturbed = [
        disturbed_run(10.0, 1, "undisturbed"),
        disturbed_run(12.0, 2, "undisturbed", "alone_on_host"),
        disturbed_run(99.0, 3, "undisturbed", "pixels"),
    ]
    rows, settings = rows_of(disturbed, unsupported=[])
    assert [row["provisional"] for row in rows] == [True, True, False]
    (cell,) = cells_from(rows, settings)
    assert (cell["samples_per_s"], cell["provisional_samples_per_s"]) == (None, 11.0)
    assert (cell["speedup"], cell["ok_runs"]) == (None, 0)
    ok = make_record(20.0, spec=make_spec(0, repeat=4))
    (cell,) = cells_from(*rows_of([*disturbed, ok], unsupported=[]))
    assert (cell["samples_per_s"], cell["provisional_samples_per_s"]) == (20.0, None)


@pytest.mark.parametrize("change", [{"train": {"batch_size": 8}}, {"seed": 5}])
def test_runs_of_other_settings_than_the_first_ok_one_are_in_no_median(change):
    """The repeats of a cell differ in their seeds."""
    rates = {1: (7.0, "failed"), 2: (10.0, "ok"), 3: (99.0, "ok"), 4: (12.0, "ok")}
    records = [
        make_record(rate, spec=make_spec(0, repeat=k, **(change if k == 3 else {})), status=status)
        for k, (rate, status) in rates.items()
    ]
    rows, settings = rows_of(records[::-1])
    cell = cells_from(rows, settings)[0]
    if "seed" in change:
        assert (cell["ok_runs"], cell["invalid_runs"], cell["samples_per_s"]) == (3, 0, 12.0)
    else:
        assert (cell["ok_runs"], cell["invalid_runs"], cell["samples_per_s"]) == (2, 1, 11.0)
        assert rows[2]["status"] == "invalid"
        assert "repeat 2" in rows[2]["cause"]


def test_a_cell_has_the_settings_of_its_first_run_with_a_readable_spec():
    lost = make_record(None, spec=make_spec(0), status="failed", cause="spec.json is damaged")
    lost = msgspec.structs.replace(lost, spec=None)
    records = [lost, make_record(10.0, spec=make_spec(0, repeat=2)), *runs_of(1, [11.0])]
    rows, settings = rows_of(records, unsupported=[])
    first, second = cells_from(rows, settings)
    assert (first["cell"], second["cell"]) == (W0, W1)
    assert (first["world_size"], first["batch_size"], first["status"]) == (1, 4, "ok")
    assert first["gain_high"] > 0
    assert first["cause"] == "spec.json is damaged"
    rows, settings = rows_of([lost], unsupported=[])
    assert [cell["world_size"] for cell in cells_from(rows, settings)] == [None]
