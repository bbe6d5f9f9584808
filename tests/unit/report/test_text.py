import pytest

from feedrate.report import text


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (601.5, "602"),
        (14.1, "14.1"),
        (1489.2, "1,489"),
        (0.0123, "0.0123"),
        (0, "0"),
        (-3.14159, "-3.14"),
        (9.996, "10.0"),
        (99.96, "100"),
        (None, text.DASH),
    ],
)
def test_numbers_have_three_significant_digits_and_no_exponent(value, words):
    assert text.number(value) == words


@pytest.mark.parametrize(
    ("value", "low", "high", "words"),
    [
        (43.48, 40.9, 46.1, "43.5 ±2.6"),
        (1489.2, 1460, 1520, "1,489 ±30"),
        (43.48, 40.9, 46.11, "43.5 ±2.7"),
        (7.02, 2.57, 19.1, "7.02 (2.5 to 20)"),
        (0.0123, None, None, "0.0123"),
    ],
)
def test_a_rate_has_half_its_interval(value, low, high, words):
    assert text.with_interval(value, low, high) == words


@pytest.mark.parametrize(
    ("factor", "low", "high", "words"),
    [
        (1.18, 1.05, 1.32, "+18% (5 to 32%)"),
        (0.93, 0.86, 1.0, "-7% (-14 to 0%)"),
        (1.004, 0.999, 1.009, "+0.4% (-1 to 1%)"),
        (1.29, 1.29, 1.58, "+29% (29 to 58%)"),
        (1.0, 1.0, 1.0, "0%"),
        (1.18, 0.1, 1.01, "+18% (very uncertain)"),
        (2.8, None, None, "+180%"),
        (None, None, None, text.DASH),
    ],
)
def test_a_change_has_its_interval_in_per_cent(factor, low, high, words):
    assert text.change(factor, low, high) == words


def test_shares_times_and_ratios():
    shares = {0.23: "23%", 0.024: "2.4%", 0.0004: "0.04%", 0.0: "0%", None: text.DASH}
    assert {value: text.share(value) for value in shares} == shares
    assert [text.seconds(s) for s in (0.1234, 2.5, None)] == ["123 ms", "2.50 s", text.DASH]
    ratios = {1.2766: "1.28", 12.66: "12.7", 1248: "1,248", 0.2: "0.20", 0.0032: "0.0032"}
    assert {value: text.ratio(value)[1:] for value in ratios} == ratios
    assert text.ratio(0.003, 0.002, 0.004) == f"{text.TIMES}0.0030 (0.0020 to 0.0040)"
    assert text.ratio(4.0, 3.218, None) == f"{text.TIMES}4.00 (at least 3.21)"
    assert text.ratio(4.0, None, 5.001) == f"{text.TIMES}4.00 (at most 5.01)"
    assert text.ratio(1.0, 0.946, 1.054) == f"{text.TIMES}1.00 (0.94 to 1.06)"
    assert [text.exact(v) for v in (601.5, 768, 6636.0)] == ["601.5", "768", "6,636"]


def test_lists_and_counts():
    assert [text.listed(items) for items in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
    assert text.listed(["a, b", "c"]) == "a, b; c"
    assert [text.counted(n, "run") for n in (0, 1, 1200)] == ["0 runs", "1 run", "1,200 runs"]
    assert text.levels_text({"workers": 2, "scaled": True}) == "workers = 2, scaled = true"
    assert text.grouped([1, 2, 3], lambda n: n % 2) == {1: [1, 3], 0: [2]}
