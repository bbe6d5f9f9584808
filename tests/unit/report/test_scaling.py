import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedrate.report.tables.scaling import Scaling, held_out_errors

TIMES = st.floats(0, 100)


@given(TIMES, TIMES, st.integers(2, 512))
def test_the_measured_count_takes_what_was_measured_there(compute_s, exchange_s, count):
    model = Scaling(count, compute_s, exchange_s)
    assert model.step_s(count) == pytest.approx(compute_s + exchange_s)
    assert model.step_s(1) == compute_s
    assert model.step_s(2 * count) >= model.step_s(count)


def test_a_ring_sends_at_most_twice_what_two_devices_send():
    assert Scaling(2, 1.0, 0.5).step_s(10**12) == pytest.approx(1.0 + 1.0)
    assert Scaling(2, 1.0, 0.5).step_s(8) == pytest.approx(1.875)
    assert Scaling(8, 1.0, 0.5).step_s(10_000) == pytest.approx(1.0 + 0.5 * 8 / 7, rel=1e-3)


def test_a_count_is_predicted_from_the_parts_of_another_one():
    models = {2: Scaling(2, 1.0, 0.5), 4: Scaling(4, 1.0, 1.5)}
    errors = held_out_errors(models, {1: 1.0, 2: 1.5, 4: 2.5})
    assert errors[1] == pytest.approx(0.0), "from 4 devices"
    assert errors[2] == pytest.approx(1.5 / (1.0 + 2.0 / 2) - 1), "from 4 devices, not from itself"
    assert errors[4] == pytest.approx(2.5 / (1.0 + 1.0 * 3 / 4) - 1), "from 2 devices"


def test_the_only_count_with_parts_has_no_error_of_its_own():
    assert held_out_errors({4: Scaling(4, 1.0, 0.5)}, {4: 1.6}) == {}
