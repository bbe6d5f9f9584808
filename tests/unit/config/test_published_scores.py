"""Published scores on Winoground as data."""

from pathlib import Path

import pytest

from feedrate.config.errors import ConfigError
from feedrate.config.published import read_scores

ROOT = Path(__file__).resolve().parents[3]
HEADER = "id,model,head,text_score,image_score,group_score,edition,source,note"
GOOD = "clip,CLIP,contrastive,30.75,10.50,8.00,2022-04,a paper,"


def read(tmp_path, *lines):
    path = tmp_path / "scores.csv"
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    return read_scores(path, "scores.csv")


def told(tmp_path, *lines):
    with pytest.raises(ConfigError) as error:
        read(tmp_path, *lines)
    return str(error.value)


def test_the_table_of_the_paper():
    rows = {row.id: row for row in read_scores(ROOT / "config/published/winoground.csv")}
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


def test_a_row_is_read_as_it_is_written(tmp_path):
    (row,) = read(tmp_path, GOOD)
    assert (row.model, row.head, row.text_score, row.note) == ("CLIP", "contrastive", 30.75, "")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (GOOD.replace("30.75", "130"), "line 2: text_score"),
        (GOOD.replace("10.50", "many"), "line 2: image_score"),
        (GOOD.replace("8.00", ""), "line 2: group_score: missing"),
        (GOOD.replace("a paper", ""), "line 2: source: missing"),
        (GOOD + ",more", "line 2: 10 fields, but the header has 9"),
        (f"{GOOD}\n{GOOD}", "line 3: id: 'clip' occurs in line 2 already"),
    ],
)
def test_a_wrong_row_is_told_with_its_line(tmp_path, line, says):
    assert f"scores.csv, {says}" in told(tmp_path, line)


def test_an_unknown_column_is_told(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text(HEADER.replace("head", "heads") + "\n" + GOOD + "\n")
    with pytest.raises(ConfigError, match="line 1: column 'heads'"):
        read_scores(path, "scores.csv")
