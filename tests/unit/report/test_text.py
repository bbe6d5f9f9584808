import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedrate.report import text


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (601.5, "601.5"),
        (1489.2, "1,489"),
        (14.1, "14.10"),
        (0.0123, "0.01230"),
        (0, "0.000"),
        (123456, "123,456"),
        (None, text.DASH),
    ],
)
def test_numbers_have_four_significant_digits_and_no_exponent(value, said):
    assert text.number(value) == said


@given(st.floats(min_value=1e-6, max_value=1e9))
def test_a_number_reads_back_within_its_digits(value):
    said = text.number(value)
    assert "e" not in said
    assert float(said.replace(",", "")) == pytest.approx(value, rel=5e-4)


@pytest.mark.parametrize(
    ("value", "said"), [(601.5, "601.5"), (904.93, "904.93"), (6636.0, "6,636")]
)
def test_a_published_value_keeps_the_digits_of_its_source(value, said):
    assert text.exact(value) == said


def test_shares_times_ratios_and_intervals():
    assert text.share(0.243) == "24%"
    assert text.share(0.0061) == "0.6%"
    assert text.seconds(0.5671) == "567 ms"
    assert text.seconds(34.286) == "34.3 s"
    assert text.ratio(1.2777) == f"{text.TIMES}1.28"
    assert text.interval(13.96, 14.24) == "13.96 to 14.24"
    assert text.interval(None, 1.0) == ""
    assert text.ratio_interval(1.228, 1.3) == "1.23 to 1.30"
    assert text.ratio_interval(12.66, 1248.27) == "12.7 to 1,248"
    assert text.with_interval(14.1, 13.96, 14.24, "samples/s") == "14.10 samples/s (13.96 to 14.24)"
    assert text.with_interval(14.1, None, 14.24) == "14.10"
