import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feedrate.results.statistics import median_interval, ratio_interval, spread

RATES = st.lists(st.floats(0.1, 1e4), min_size=1, max_size=9)


@settings(max_examples=60, deadline=None)
@given(values=RATES, confidence=st.floats(0.5, 0.99))
def test_the_interval_holds_the_median_and_stays_within_the_values(values, confidence):
    found = median_interval(values, confidence)
    assert found.value == float(np.median(values))
    if len(values) == 1:
        assert (found.low, found.high) == (None, None)
    else:
        assert min(values) <= found.low <= found.value <= found.high <= max(values)


@settings(max_examples=40, deadline=None)
@given(values=RATES, factor=st.sampled_from([0.5, 2.0, 8.0]))
def test_intervals_scale_with_the_values(values, factor):
    one, scaled = (median_interval([v * k for v in values], 0.95) for k in (1.0, factor))
    assert scaled == tuple(None if x is None else x * factor for x in one)


@settings(max_examples=40, deadline=None)
@given(values=RATES, seed=st.integers(0, 99))
def test_the_order_of_the_values_does_not_matter_up_to_five(values, seed):
    values = values[:5]
    shuffled = list(np.random.default_rng(seed).permutation(values))
    assert median_interval(values, 0.95) == median_interval(shuffled, 0.95)


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_few_values_at_95_percent_give_their_range(n):
    values = [10.0, 12.0, 11.0, 17.0, 16.0][:n]
    found = median_interval(values, 0.95)
    assert (found.low, found.high) == (min(values), max(values))


def test_three_values_at_a_low_confidence_give_less_than_their_range():
    # 7 of the 27 resamples have the smallest value as their median: 25.9% at each end.
    assert median_interval([1.0, 2.0, 3.0], 0.47)[1:] == (2.0, 2.0)
    assert median_interval([1.0, 2.0, 3.0], 0.49)[1:] == (1.0, 3.0)


def test_equal_values_have_an_interval_of_no_width():
    assert median_interval([7.0] * 6, 0.95) == (7.0, 7.0, 7.0)


def test_many_values_are_resampled_the_same_way_each_time():
    values = list(np.random.default_rng(1).normal(100, 5, 30))
    first, second = (median_interval(values, 0.95) for _ in range(2))
    assert first == second
    assert min(values) < first.low < first.high < max(values)


def test_the_interval_of_many_values_covers_the_true_median_about_as_often_as_it_says():
    rng = np.random.default_rng(7)
    samples = rng.normal(100, 5, (200, 15))
    intervals = [median_interval(list(sample), 0.95) for sample in samples]
    covered = sum(low <= 100 <= high for _, low, high in intervals)
    assert 0.86 <= covered / len(samples) <= 0.99


def test_no_value_is_an_error():
    with pytest.raises(ValueError, match="no values"):
        median_interval([], 0.95)


def test_the_ratio_of_three_runs_each_spans_all_ratios():
    found = ratio_interval([10.0, 11.0, 12.0], [4.0, 5.0, 6.0], 0.95)
    assert found.value == 11 / 5
    assert (found.low, found.high) == (10 / 6, 12 / 4)


@settings(max_examples=40, deadline=None)
@given(above=RATES, below=RATES)
def test_a_ratio_lies_within_its_interval_and_the_extremes(above, below):
    found = ratio_interval(above, below, 0.95)
    if len(above) > 1 and len(below) > 1:
        slack = 1e-9 * found.value
        assert min(above) / max(below) - slack <= found.low <= found.value + slack
        assert found.value - slack <= found.high <= max(above) / min(below) + slack
    else:
        assert (found.low, found.high) == (None, None)


@settings(max_examples=30, deadline=None)
@given(values=st.lists(st.floats(0.1, 1e4), min_size=2, max_size=5))
def test_the_inverse_ratio_has_the_inverse_interval(values):
    other = [1.0, 2.0, 4.0]
    one, inverse = ratio_interval(values, other, 0.9), ratio_interval(other, values, 0.9)
    assert one.low == pytest.approx(1 / inverse.high)
    assert one.high == pytest.approx(1 / inverse.low)


def test_spread():
    assert spread([9.0, 10.0, 12.0]) == pytest.approx(0.3)
    assert spread([9.0]) is None
