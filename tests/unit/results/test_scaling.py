import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedrate.results.scaling import Scaling, fit_scaling


@given(st.floats(1e-3, 10), st.floats(1e-3, 10), st.sets(st.integers(1, 64), min_size=2))
def test_what_follows_the_model_is_fitted_exactly(compute_s, exchange_s, counts):
    truth = Scaling(compute_s, exchange_s)
    found = fit_scaling({n: truth.step_s(n) for n in counts})
    assert found is not None
    assert found.step_s(256) == pytest.approx(truth.step_s(256), rel=1e-3)


def test_one_count_explains_nothing_and_faster_steps_are_no_exchange():
    assert fit_scaling({8: 1.0}) is None
    assert fit_scaling({1: 2.0, 8: 1.0}) == Scaling(1.5, 0.0)
