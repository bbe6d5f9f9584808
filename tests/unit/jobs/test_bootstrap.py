"""Intervals of means."""

import numpy as np
import pytest

from feedrate.jobs import scores
from feedrate.jobs.scores import mean_interval


def test_the_interval_of_a_share_is_the_binomials():
    hits = np.array([True] * 30 + [False] * 70)
    found = mean_interval(hits)
    assert found.value == pytest.approx(0.3)
    # 0.3 -+ 1.96 * sqrt(0.3 * 0.7 / 100)
    assert found.low == pytest.approx(0.21, abs=0.015)
    assert found.high == pytest.approx(0.39, abs=0.015)


def test_the_same_values_give_the_same_interval():
    values = np.random.default_rng(1).normal(size=37)
    assert mean_interval(values) == mean_interval(values)
    assert mean_interval(values) == mean_interval(list(values))


def test_a_wider_confidence_is_a_wider_interval():
    values = np.random.default_rng(1).normal(size=50)
    narrow, wide = mean_interval(values, 0.5), mean_interval(values, 0.99)
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
