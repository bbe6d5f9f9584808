import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_builder import BASELINE, FACTORS

from feedrate.config.values import level_text, parse_level
from feedrate.results.expression import ANY, CellRef, ExpressionError, Ratio, cell_levels, parse

WORD = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,8}", fullmatch=True)
LEVEL = WORD.map(parse_level).map(level_text)
LEVELS = st.dictionaries(WORD, LEVEL, max_size=3).map(lambda d: tuple(d.items()))
CELL = st.builds(CellRef, WORD | st.just("*"), LEVELS)


@settings(max_examples=100, deadline=None)
@given(ratio=st.builds(Ratio, CELL, CELL))
def test_what_is_written_is_read_back(ratio):
    assert parse(str(ratio)) == ratio


@settings(max_examples=50, deadline=None)
@given(ratio=st.builds(Ratio, CELL, CELL), spaces=st.text(" \t\n", max_size=3))
def test_white_space_does_not_matter(ratio, spaces):
    text = str(ratio)
    for symbol in "[]=,/":
        text = text.replace(symbol, f"{spaces}{symbol}{spaces}")
    assert parse(f"{spaces}{text}{spaces}") == ratio


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=40) | st.text("ab1[]=,/* ", max_size=30))
def test_any_text_is_an_expression_or_one_error(text):
    try:
        ratio = parse(text)
    except ExpressionError as error:
        message = str(error)
    else:
        assert parse(str(ratio)) == ratio
        return
    assert "expected" in message or "occurs twice" in message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "expected a device or *"),
        ("gaudi2", "expected two cells"),
        ("gaudi2 / ", "expected a device or *"),
        ("gaudi2[workers] / h100", "expected factor=value"),
        ("gaudi2[workers=] / h100", "expected factor=value"),
        ("gaudi2[=2] / h100", "expected factor=value"),
        ("gaudi2[workers=1 / h100", "'gaudi2[workers=1'"),
        ("a / b / c", "found 3"),
        ("a / b]", "'b]'"),
        ("a[w=1,w=2] / b", "'w' occurs twice"),
        ("a$ / b", "'a$'"),
        ("(a) / b", "'(a)'"),
    ],
)
def test_what_is_wrong_is_told(text, told):
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert told in str(caught.value)


def test_factors_that_are_not_named_stand_at_the_baseline():
    ref = parse("gaudi2[decode=device] / h100").numerator
    assert cell_levels(ref, FACTORS, BASELINE) == {"workers": "0", "decode": "device"}


def test_spellings_of_a_number_are_one_level():
    ref = parse("gaudi2[workers=2.50,decode=host] / h100").numerator
    assert cell_levels(ref, FACTORS, BASELINE)["workers"] == "2.5"


def test_the_star_becomes_each_device():
    ratio = parse("*[workers=2] / *")
    assert ANY in ratio.devices
    assert str(ratio.on("cpu")) == "cpu[workers=2] / cpu[]"
    assert parse("* / h100").on("cpu").devices == ["cpu", "h100"]
    assert ANY not in parse("cpu / h100").devices
