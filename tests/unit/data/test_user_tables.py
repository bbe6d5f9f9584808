import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedrate.data.manifest import DataError, Unusable
from feedrate.data.sources.folder import fill, names_in
from feedrate.data.tables import make_table, plain_text, read_table


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def test_the_four_kinds_of_tables_read_alike(tmp_path):
    rows = [{"contest": 1, "caption": 'A "quoted" word'}, {"contest": 2, "caption": '"Open, and;'}]
    files = [
        write(tmp_path / "a.csv", 'contest,caption\n1,"A ""quoted"" word"\n2,"""Open, and;"\n'),
        write(tmp_path / "b.tsv", 'contest\tcaption\r\n1\tA "quoted" word\r\n2\t"Open, and;'),
        write(tmp_path / "c.jsonl", "\n\n".join(map(json.dumps, rows))),
        tmp_path / "D.PARQUET",
    ]
    pq.write_table(pa.Table.from_pylist(rows), files[3])
    for file in files:
        table = read_table(file)
        assert table.columns == ["contest", "caption"]
        assert [{k: plain_text(v, k) for k, v in row.items()} for row in table.rows] == [
            {k: plain_text(v, k) for k, v in row.items()} for row in rows
        ]


def test_a_separator_is_that_of_csv_and_tsv(tmp_path):
    path = write(tmp_path / "a.csv", 'a;b\n"1";"x;""y"\n')
    assert read_table(path, separator=";").rows == [{"a": "1", "b": 'x;"y'}]
    path = write(tmp_path / "a.tsv", 'a|b\n"1"|x"\n')
    assert read_table(path, separator="|").rows == [{"a": '"1"', "b": 'x"'}]


def test_lines_without_a_value_are_no_rows_and_fields_may_have_several_lines(tmp_path):
    path = write(tmp_path / "a.csv", '\r\n a , b\r\n1,"two\r\nlines"\r\n\r\n,\r\n  \r\n2,x\r\n')
    table = read_table(path)
    assert table.columns == ["a", "b"]
    assert table.rows == [{"a": "1", "b": "two\r\nlines"}, {"a": "2", "b": "x"}]


def test_a_byte_order_mark_and_text_like_null_and_na_are_no_trouble(tmp_path):
    path = write(tmp_path / "a.csv", "caption,rank\nNA,1\nnull,\nNone,007\n", "utf-8-sig")
    table = read_table(path)
    assert table.columns == ["caption", "rank"]
    assert [row["caption"] for row in table.rows] == ["NA", "null", "None"]
    assert table.rows[2]["rank"] == "007"


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("a.xlsx", b"PK", "ends in one of"),
        ("a.csv", b"", "empty"),
        ("a.csv", b"caption\nna\xefve\n", "not UTF-8"),
        ("a.csv", b"caption\n" + b"x" * 200_000, "line 2: field larger"),
        ("a.csv", b'a,b\n1,"x\ny"\n2,"open\n3,z\n4,z\n', "line 4: a quote is not closed"),
        ("a.csv", b'a,b\n1,"open\n2,"x"\n', "line 2: ',' expected after"),
        ("a.csv", b"a,b\n1,x\n\n2,x, y\n", "line 4: 3 fields, but 2 columns (the key separator"),
        ("a.csv", b"a,b\n1\n", "line 2: 1 fields, but 2 columns"),
        (
            "a.tsv",
            b"a\tb\n1\tx\ty\n",
            "line 2: 3 fields, but 2 columns (the key separator is '\\t')",
        ),
        (
            "a.csv",
            b'"a";"b"\n"1";"2"\n',
            "line 1: ',' expected after '\"' (the key separator is ','",
        ),
        ("a.csv", b"a,b, a\n1,2,3\n", "several columns have the name 'a'"),
        ("a.jsonl", b'{"a": 1, "a": 2}\n', "line 1: not a JSON object with distinct keys"),
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


def test_a_parquet_column_that_occurs_twice_is_an_error(tmp_path):
    pq.write_table(pa.table([[1], [2]], names=["a", "a"]), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="several columns have the name 'a'"):
        read_table(tmp_path / "a.parquet", only_columns=True)
    with pytest.raises(DataError, match=r"a.parquet: Multiple matches .*a"):
        read_table(tmp_path / "a.parquet")


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
    with pytest.raises(Unusable, match="column 'n': no value"):
        fill("{n}-{n}", {"n": None}, "")
    assert fill("{table}", {"table": "mine"}, "508") == "mine"


def test_braces_in_values_and_attributes_mean_nothing():
    assert fill("{a}", {"a": "{b}", "b": "no"}, "") == "{b}"
    assert names_in("{a.__class__}/{b[0]}/{a.__class__}") == ["a.__class__", "b[0]"]


@given(st.lists(st.tuples(WORD, WORD)), WORD)
def test_every_name_is_replaced_by_its_value_and_all_else_stays(pieces, end):
    template = "".join(f"{fixed}{{{name}}}" for fixed, name in pieces) + end
    row = {name: f"<{name}>" for _, name in pieces}
    expected = "".join(f"{fixed}<{name}>" for fixed, name in pieces) + end
    assert fill(template, row, "") == expected
    assert set(names_in(template)) == set(row)
