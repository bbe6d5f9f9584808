import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedrate.results.fitting import Scaling, scaling

TIMES = st.floats(0, 100)


@given(TIMES, TIMES, st.integers(2, 512))
def test_the_measured_count_takes_what_was_measured_there(compute_s, exchange_s, count):
    model = scaling(count, compute_s, exchange_s)
    assert model.step_s(count) == pytest.approx(compute_s + exchange_s)
    assert model.step_s(1) == compute_s
    assert model.step_s(2 * count) >= model.step_s(count)


def test_a_ring_sends_at_most_twice_what_two_devices_send():
    assert scaling(2, 1.0, 0.5) == Scaling(1.0, 1.0)
    assert scaling(2, 1.0, 0.5).step_s(8) == pytest.approx(1.875)
    assert scaling(8, 1.0, 0.5).step_s(10_000) == pytest.approx(1.0 + 0.5 * 8 / 7, rel=1e-3)
