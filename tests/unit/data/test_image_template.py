from hypothesis import given
from hypothesis import strategies as st

from feedrate.data.tables import fill, names

WORD = st.text(st.characters(exclude_characters="{}", exclude_categories=["Cs"]), max_size=8)


def test_columns_the_table_s_name_and_numbers_fill_in():
    assert fill("cartoons/{contest}.jpg", {"contest": "508"}, "t") == "cartoons/508.jpg"
    assert fill("{table}/{n}.png", {"n": 508.0}, "508") == "508/508.png"
    assert fill("{n}-{n}", {"n": None}, "") == "-"
    assert fill("{table}", {"table": "mine"}, "508") == "mine"


def test_braces_in_values_and_attributes_mean_nothing():
    assert fill("{a}", {"a": "{b}", "b": "no"}, "") == "{b}"
    assert names("{a.__class__}/{b[0]}/{a.__class__}") == ["a.__class__", "b[0]"]


@given(st.lists(st.tuples(WORD, WORD)), WORD)
def test_every_name_is_replaced_by_its_value_and_all_else_stays(pieces, end):
    template = "".join(f"{fixed}{{{name}}}" for fixed, name in pieces) + end
    row = {name: f"<{name}>" for _, name in pieces}
    expected = "".join(f"{fixed}<{name}>" for fixed, name in pieces) + end
    assert fill(template, row, "") == expected
    assert set(names(template)) == set(row)
