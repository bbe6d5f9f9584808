"""Intervals of means."""

import numpy as np
import pytest

from feedrate.jobs import scores
from feedrate.jobs.scores import entry, mean_interval, share_interval


def hits(right, of=100):
    return np.arange(of) < right


@pytest.mark.parametrize("interval", [mean_interval, share_interval])
def test_the_interval_of_a_share_is_the_binomials(interval):
    found = interval(hits(30))
    assert found.value == pytest.approx(0.3)
    # 0.3 -+ 1.96 * sqrt(0.3 * 0.7 / 100)
    assert found.low == pytest.approx(0.21, abs=0.015)
    assert found.high == pytest.approx(0.39, abs=0.015)


def test_a_share_of_none_or_all_has_an_interval_with_a_width():
    # Wilson: z^2 / (n + z^2) = 3.84 / 103.84
    assert share_interval(hits(0)) == pytest.approx((0.0, 0.0, 0.0370), abs=1e-4)
    assert share_interval(hits(100)) == pytest.approx((1.0, 0.963, 1.0), abs=1e-4)


@pytest.mark.parametrize("right", [0, 1, 30, 100])
def test_hits_of_one_group_that_rise_together_count_once(right):
    alone = share_interval(hits(right))
    assert share_interval(hits(right).repeat(3), np.arange(100).repeat(3)) == pytest.approx(alone)


def test_groups_never_make_an_interval_narrower_than_independent_hits_would():
    apart = np.arange(100) % 2 == 0
    assert share_interval(apart, np.arange(100) // 2) == share_interval(apart)


def test_flags_get_the_interval_of_a_share_and_other_values_a_bootstrap():
    for flags in (hits(0), hits(1), hits(30)):
        one = entry("text_score", flags)
        assert (one["value"], one["low"], one["high"]) == share_interval(flags)
    losses = [1.0, 2.0, 2.5]
    one = entry("loss", losses)
    assert (one["value"], one["low"], one["high"]) == mean_interval(losses)


def test_the_same_values_give_the_same_interval():
    values = np.random.default_rng(1).normal(size=37)
    assert mean_interval(values) == mean_interval(values)
    assert mean_interval(values) == mean_interval(list(values))


def test_a_wider_confidence_is_a_wider_interval(monkeypatch):
    values = np.random.default_rng(1).normal(size=50)
    found = []
    for confidence in (0.5, 0.99):
        monkeypatch.setattr(scores, "CONFIDENCE", confidence)
        found.append(mean_interval(values))
    narrow, wide = found
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high


def test_more_values_are_a_narrower_interval():
    draw = np.random.default_rng(1)
    widths = []
    for n in (20, 200, 2000):
        found = mean_interval(draw.normal(size=n))
        widths.append(found.high - found.low)
    assert widths == sorted(widths, reverse=True)


def test_resamples_in_pieces_are_as_good_as_at_once(monkeypatch):
    values = np.random.default_rng(1).normal(size=40)
    whole = mean_interval(values)
    monkeypatch.setattr(scores, "_CHUNK", 40 * 7)  # 7 resamples at a time
    pieces = mean_interval(values)
    assert pieces.low == pytest.approx(whole.low, abs=0.02)
    assert pieces.high == pytest.approx(whole.high, abs=0.02)


def test_values_that_do_not_differ_have_no_width():
    assert mean_interval([1.0, 1.0, 1.0]) == (1.0, 1.0, 1.0)
    assert mean_interval([0.5]) == (0.5, 0.5, 0.5)


def test_no_value_has_no_mean():
    with pytest.raises(ValueError, match="no values"):
        mean_interval([])
