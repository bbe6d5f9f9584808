import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedrate.data.manifest import DataError
from feedrate.data.sources.folder import fill, names
from feedrate.data.tables import TOO_LONG, make_table, plain_text, read_table

ROWS = [{"contest": 1, "caption": "A „quoted“, comma"}, {"contest": 2, "caption": "two\nlines"}]


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def test_the_four_kinds_of_tables_read_alike(tmp_path):
    quoted = [f'{row["contest"]},"{row["caption"]}"' for row in ROWS]
    files = [
        write(tmp_path / "a.csv", "\n".join(["contest,caption", *quoted])),
        write(tmp_path / "b.tsv", "\n".join(["contest\tcaption", *quoted]).replace(",", "\t", 2)),
        write(tmp_path / "c.jsonl", "\n\n".join(map(json.dumps, ROWS))),
        tmp_path / "D.PARQUET",
    ]
    files[1].write_text('contest\tcaption\n1\t"A „quoted“, comma"\n2\t"two\nlines"\n', "utf-8")
    pq.write_table(pa.Table.from_pylist(ROWS), files[3])
    for file in files:
        table = read_table(file)
        assert table.columns == ["contest", "caption"]
        assert [{k: plain_text(v) for k, v in row.items()} for row in table.rows] == [
            {k: plain_text(v) for k, v in row.items()} for row in ROWS
        ]


def test_a_byte_order_mark_and_text_like_null_and_na_are_no_trouble(tmp_path):
    path = write(tmp_path / "a.csv", "caption,rank\nNA,1\nnull,\nNone,007\n", "utf-8-sig")
    table = read_table(path)
    assert table.columns == ["caption", "rank"]
    assert [row["caption"] for row in table.rows] == ["NA", "null", "None"]
    assert table.rows[2]["rank"] == "007"


def test_a_row_with_too_many_fields_is_marked(tmp_path):
    table = read_table(write(tmp_path / "a.csv", "a,b\n1,2\n1,2,3\n4\n"))
    assert [TOO_LONG in row for row in table.rows] == [False, True, False]
    assert table.rows[2]["b"] is None


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("a.xlsx", b"PK", "ends in one of"),
        ("a.csv", b"", "empty"),
        ("a.csv", b"caption\nna\xefve\n", "not UTF-8"),
        ("a.csv", b"caption\n" + b"x" * 200_000, "field larger"),
        ("a.jsonl", b'{"a": 1}\n[1]\n', "line 2: not a JSON object"),
        ("a.jsonl", b"{", "line 1"),
        ("a.jsonl", b"\n", "empty"),
        ("a.jsonl", b"[" * 100_000, "line 1"),
        ("a.parquet", b"not parquet", "a.parquet"),
    ],
)
def test_what_is_no_table_is_one_sentence_that_names_the_file(tmp_path, name, data, says):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(DataError) as error:
        read_table(path)
    assert str(path) in str(error.value)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_columns_get_the_type_that_all_their_values_have():
    rows = [
        {"contest_number": "508", "rank": "1", "score": "1.5", "note": "a"},
        {"contest_number": 509.0, "rank": "", "score": "2", "note": "7"},
    ]
    table = make_table(rows, ("image",))
    assert table["contest_number"].to_pylist() == [508, 509]
    assert table["rank"].to_pylist() == [1, None]
    assert table["score"].to_pylist() == [1.5, 2.0]
    assert table["note"].to_pylist() == ["a", "7"]
    assert table["image"].to_pylist() == [None, None]
    assert table["caption_choices"].to_pylist() == [[], []]


def test_lists_stay_lists_and_single_text_becomes_one():
    choices = (["a", "b"], "c", "")
    table = make_table([{"caption_choices": value} for value in choices], ())
    assert table["caption_choices"].to_pylist() == [["a", "b"], ["c"], []]


@given(st.lists(st.dictionaries(st.sampled_from(["caption", "rank", "x"]), st.text() | st.none())))
def test_any_text_makes_a_table(rows):
    assert make_table(rows, ("image",)).num_rows == len(rows)


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
