"""Two sets of results, cell by cell."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feedrate.config.study import Thresholds
from feedrate.results.comparison import compare, judge, slowed
from result_sets import AFTER, runs

LINES = Thresholds()


def results(*cells):
    """A set that was read, without files."""
    return [row for cell in cells for row in cell]


def changes(before, after, lines=LINES):
    """The rows of the comparison, by cell."""
    return {row["cell"]: row for row in compare(before, after, lines)}


def one(old, new, **lines):
    """The only row of two sets of one cell with these rates."""
    (row,) = compare(results(runs(0, *old)), results(runs(0, *new, day=AFTER)), Thresholds(**lines))
    return row


def test_equal_sets_do_not_differ():
    row = one([10.9, 11.0, 11.1], [10.9, 11.0, 11.1])
    assert row["change"] == "no difference"
    assert row["ratio"] == 1
    assert row["ratio_ci_low"] < 10.9 / 11.1 < 11.1 / 10.9 < row["ratio_ci_high"]
    assert row["same_runs"] == 0
    assert row["differs"] == ""


def test_the_same_runs_are_told():
    cell = runs(0, 10.0, 11.0)
    (row,) = compare(results(cell), results(cell), LINES)
    assert (row["change"], row["same_runs"]) == ("no difference", 2)


def test_nobody_can_tell_where_the_interval_holds_1_however_large_the_change():
    row = one([5.0, 10.0, 30.0], [4.0, 20.0, 21.0])
    assert row["ratio"] == 2
    assert row["change"] == "cannot tell"


def test_nobody_can_tell_where_equal_medians_may_be_a_large_change_apart():
    row = one([5.0, 10.0, 30.0], [4.0, 10.0, 21.0])
    assert row["ratio"] == 1
    assert row["ratio_ci_low"] < 1 / 1.1
    assert row["change"] == "cannot tell"


def test_a_small_change_is_noise_however_narrow_the_interval():
    row = one([100.0, 100.1], [93.0, 93.1])
    assert row["ratio_ci_high"] < 1
    assert row["change"] == "no difference"
    assert one([100.0, 100.1], [93.0, 93.1], noise_share=0.05)["change"] == "slower"


@pytest.mark.parametrize(
    ("new", "change"),
    [(90.5, "slower"), (91.0, "no difference"), (109.9, "no difference"), (110.5, "faster")],
)
def test_single_runs_go_by_the_noise_share_and_say_so(new, change):
    row = one([100.0], [new])
    assert row["change"] == change
    assert row["ratio_ci_low"] is None


def test_the_noise_is_that_of_all_cells_of_both_sets():
    steady = [runs(n, 10.0, 10.01, 10.02) for n in (1, 2, 3)]
    again = [runs(n, 10.0, 10.01, 10.02, day=AFTER) for n in (1, 2, 3)]
    old, new = runs(0, 100.0), runs(0, 85.0, day=AFTER)
    alone = changes(results(old), results(new))["workers=0"]
    among = changes(results(old, *steady), results(new, *again))["workers=0"]
    assert alone["ratio_ci_high"] is None
    assert among["ratio_ci_high"] < 0.9


def test_of_many_cells_more_must_differ_by_chance():
    old, new = ([runs(n, 10.0, 10.5, 11.0, day=day) for n in range(20)] for day in (1, AFTER))
    lone = changes(results(old[0]), results(new[0]))["workers=0"]
    many = changes(results(*old), results(*new))["workers=0"]
    assert many["ratio_ci_high"] > lone["ratio_ci_high"]


def test_only_ok_runs_count():
    row = one([10.0, 10.0, 10.0], [None, 20.0, 20.0])
    assert (row["ok_runs_before"], row["ok_runs_after"]) == (3, 2)
    assert (row["status_before"], row["status_after"]) == ("ok", "ok")
    assert row["change"] == "faster"
    invalid = runs(0, 99.0, day=AFTER, status="invalid", cause="Too fast.")
    (row,) = compare(results(runs(0, 10.0)), results(invalid), LINES)
    assert row["samples_per_s_after"] is None
    assert (row["change"], row["cause"]) == ("other status", "Too fast.")


def test_a_status_that_changed_is_told_with_its_cause():
    found = changes(
        results(runs(0, 10.0), runs(1, None), runs(2, None)),
        results(
            runs(0, None, status="out_of_memory", cause="No memory."),
            runs(1, 10.0),
            runs(2, None, cause="It broke again."),
        ),
    )
    told = {
        cell: (row["change"], row["status_before"], row["status_after"], row.get("cause"))
        for cell, row in found.items()
    }
    assert told == {
        "workers=0": ("other status", "ok", "out_of_memory", "No memory."),
        "workers=1": ("other status", "failed", "ok", "It broke."),
        "workers=2": ("no rate", "failed", "failed", "It broke again."),
    }
    assert all(row.get("ratio") is None for row in found.values())


def test_slowed_beyond_a_share():
    rows = compare(
        results(*(runs(w, 100.0, 100.0) for w in range(5)), runs(5, None), runs(6, 1.0)),
        results(
            *(runs(w, rate, rate, day=AFTER) for w, rate in enumerate((80.0, 70.0, 95.0, 130.0))),
            runs(4, None),
            runs(5, 10.0),
        ),
        LINES,
    )
    assert [row["cell"] for row in slowed(rows, 0.25)] == ["workers=1", "workers=4"]
    assert [row["cell"] for row in slowed(rows, 0.0)] == ["workers=1", "workers=0", "workers=4"]


RATES = st.lists(st.floats(0.1, 1e4), min_size=1, max_size=6)
SWAPPED = {"slower": "faster", "faster": "slower"}


@settings(max_examples=80, deadline=None)
@given(old=RATES, new=RATES, noise=st.sampled_from([0.0, 0.1, 0.5]))
def test_swapping_the_sets_inverts_the_ratios(old, new, noise):
    lines = Thresholds(noise_share=noise)
    row, swapped = judge(old, new, lines), judge(new, old, lines)
    assert swapped["ratio"] == pytest.approx(1 / row["ratio"])
    if row["ratio_ci_low"] is None:
        assert swapped["ratio_ci_low"] is None
    else:
        assert swapped["ratio_ci_low"] == pytest.approx(1 / row["ratio_ci_high"])
        assert swapped["ratio_ci_high"] == pytest.approx(1 / row["ratio_ci_low"])
    assert swapped["change"] == SWAPPED.get(row["change"], row["change"])
