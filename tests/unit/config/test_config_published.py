"""CSV files of published numbers and scores."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedrate.config.errors import ConfigError
from feedrate.config.study import BenchmarkAccuracy, BenchmarkScore, Published
from feedrate.config.values import level_text, parse_levels, read_rows

HEAD = (
    "id,device,count,levels,metric,value,unit,batch_size,edition,software,source,protocol,headline"
)
ROW = 'a,h100,8,workers=2;decode=host,samples_per_s,602.1,samples/s,48,2023-08,,Post,"a, b",true'

names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
values = st.one_of(
    st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), names
)


@pytest.fixture
def read(tmp_path):
    def read(*lines, encoding="utf-8"):
        path = tmp_path / "numbers.csv"
        path.write_text("\n".join(lines) + "\n", encoding=encoding)
        return read_rows(path, Published, "numbers.csv")

    return read


def test_a_row(read):
    (row,) = read(HEAD, ROW)
    assert (row.id, row.device, row.count, row.levels) == (
        *("a", "h100", 8),
        {"workers": 2, "decode": "host"},
    )
    assert (row.metric, row.value, row.unit) == ("samples_per_s", 602.1, "samples/s")
    assert (row.batch_size, row.edition, row.software) == (48, "2023-08", "")
    assert (row.source, row.protocol, row.headline) == ("Post", "a, b", True)


def test_what_may_be_missing(read):
    head = "id,device,count,levels,metric,value,unit,edition,source"
    (row,) = read(head, "a,h100,1,,samples_per_s,5,samples/s,2023,Post")
    assert (row.levels, row.batch_size, row.headline, row.protocol) == ({}, None, False, "")
    assert row.edition == "2023", "an edition is text, whatever it looks like"


def test_empty_lines_and_marks_of_spreadsheets_are_passed_over(read):
    assert len(read(HEAD, "", ROW, "", encoding="utf-8-sig")) == 1


@given(st.dictionaries(names, values, max_size=4))
def test_levels_are_read_as_they_are_written(levels):
    text = " ; ".join(f"{name} = {level_text(level)}" for name, level in levels.items())
    again = parse_levels(text)
    plain = {k: v for k, v in levels.items() if v not in ("true", "false")}
    assert {k: again[k] for k in plain} == plain
    assert [type(again[k]) for k in plain] == [type(v) for v in plain.values()]


@given(st.text(max_size=200))
def test_any_file_is_read_or_told_in_lines_with_its_name(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        assert read_rows(path, Published, "any.csv") == []
        return
    except ConfigError as error:
        message = str(error)
    assert message.startswith("any.csv")


ROOT = Path(__file__).resolve().parents[3]


def test_the_table_of_the_paper():
    rows = {
        row.id: row for row in read_rows(ROOT / "config/published/winoground.csv", BenchmarkScore)
    }
    scores = {
        name: (row.text_score, row.image_score, row.group_score) for name, row in rows.items()
    }
    assert len(rows) == 21
    assert scores["human"] == (89.50, 88.50, 85.50)
    assert scores["chance"] == (25.00, 25.00, 16.67)
    assert scores["clip-b32"] == (30.75, 10.50, 8.00)
    assert scores["flava-itm"] == (32.25, 20.50, 14.25)
    assert scores["uniter-large"] == (38.00, 14.00, 10.50)
    assert scores["vinvl"] == (37.75, 17.75, 14.50)
    for name, (text, image, group) in scores.items():
        assert group <= min(text, image), name
        assert all(100 * 4 * score % 1 == 0 for score in (text, image, group)) or name == "chance"
    assert {row.edition for row in rows.values()} == {"2022-04"}
    assert all("2204.03162" in row.source for row in rows.values())


def test_the_accuracies_on_vqav2_that_the_post_prints():
    rows = read_rows(ROOT / "config/published/vqav2.csv", BenchmarkAccuracy)
    accuracy = {row.id: row.accuracy for row in rows}
    assert accuracy["bridgetower"] == 78.73
    assert accuracy["bridgetower-large"] == 81.15
    assert round(accuracy["bridgetower"] - accuracy["meter"], 2) == 1.09, "printed as a difference"
