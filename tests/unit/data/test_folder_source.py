import datetime
import json
import os
from unicodedata import normalize

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drawings import drawing, encoded

from feedrate.config.errors import ConfigError
from feedrate.core.files import digest_file
from feedrate.data.fetch import best_ranked
from feedrate.data.manifest import MAX_FILE_BYTES, DataError
from feedrate.data.tables import read_table


def rows_of(workplace):
    return read_table(workplace.index.parent / "rows.parquet").rows


def reasons(index):
    return {entry.path: entry.reason for entry in index.left_out}


def test_nothing_is_copied_and_every_image_is_listed_once(workplace):
    path = workplace.image("cartoons/1.jpg")
    workplace.table([("cartoons/1.jpg", "one"), ("cartoons/../cartoons/1.jpg", "again")])
    index = workplace.fetch()
    assert index.root == str(workplace.mine)
    [file] = index.files
    assert (file.path, file.sha256) == ("cartoons/1.jpg", digest_file(path))
    assert sorted(p.name for p in workplace.index.parent.iterdir()) == [
        "index.json",
        "rows.parquet",
    ]
    assert [row["image"] for row in rows_of(workplace)] == ["cartoons/1.jpg"] * 2


def test_columns_are_mapped_and_carried_and_the_template_takes_theirs(workplace):
    for contest in (508, 511):
        workplace.image(f"cartoons/{contest}.jpg", shade=contest)
        workplace.table(
            [(contest, "2", "1.5", "second"), (contest, "1", "2.5", "first")],
            f"captions/{contest}.csv",
            ("contest", "rank", "score", "funny_caption"),
        )
    columns = {
        "caption": "funny_caption",
        "contest_number": "contest",
        "rank": "rank",
        "score": "score",
    }
    workplace.fetch(
        tables="captions/*.csv", image="cartoons/{contest}.jpg", columns=columns, limit_per_image=1
    )
    rows = rows_of(workplace)
    assert [(r["contest_number"], r["rank"], r["score"], r["caption"]) for r in rows] == [
        (508, 1, 2.5, "first"),
        (511, 1, 2.5, "first"),
    ]
    assert rows[0]["origin"] == "captions/508.csv, row 2"
    assert rows[0]["caption_choices"] == []


def test_names_with_spaces_and_unicode_and_the_table_s_own_name_are_fine(workplace):
    workplace.image("ein Würfel 🎲.jpg")
    workplace.table([("ein Würfel 🎲.jpg", "a die")], "mes légendes.csv")
    assert workplace.fetch().left_out == []
    workplace.image("mes légendes.jpg", shade=3)
    index = workplace.fetch(image="{table}.jpg")
    assert [file.path for file in index.files] == ["mes légendes.jpg"]


def test_what_cannot_be_used_is_left_out_and_listed(workplace, tmp_path):
    workplace.image("good.jpg")
    (tmp_path / "secret.jpg").write_bytes(encoded(drawing()))
    (workplace.mine / "link.jpg").symlink_to(tmp_path / "secret.jpg")
    (workplace.mine / "loop.jpg").symlink_to("loop.jpg")
    (workplace.mine / "folder.jpg").mkdir()
    os.mkfifo(workplace.mine / "pipe.jpg")
    with (workplace.mine / "huge.jpg").open("wb") as stream:
        stream.truncate(MAX_FILE_BYTES + 1)
    bad = {
        "../../etc/passwd": "outside the folder",
        "/etc/passwd": "outside the folder",
        "../secret.jpg": "outside the folder",
        "link.jpg": "outside the folder",
        "/dev/zero": "outside the folder",
        "loop.jpg": None,
        "folder.jpg": "not a regular file",
        "pipe.jpg": "not a regular file",
        "huge.jpg": "larger than 256 MiB",
        "missing.jpg": "missing file",
        "good.jpg/x.jpg": "missing file",
        "a\0b": "missing file",
        "x" * 300: "missing file",
        "GOOD.jpg": "missing file",
        ".hidden/good.jpg": "hidden file",
    }
    workplace.image(".hidden/good.jpg")
    good = ("good.jpg", "fine"), (str(workplace.mine / "good.jpg"), "an absolute path within")
    blank = ("good.jpg", ""), ("good.jpg", " \t\n")
    workplace.table([*good, *((name, "caption") for name in bad), *blank, ("", "no image")])
    index = workplace.fetch()
    assert [row["caption"] for row in rows_of(workplace)] == ["fine", "an absolute path within"]
    found = reasons(index)
    for name, reason in bad.items():
        assert found[name]
        assert reason is None or found[name] == reason
    count = len(good) + len(bad)
    assert found[f"captions.csv, row {count + 1}"] == "no caption"
    assert found[f"captions.csv, row {count + 2}"] == "no caption"
    assert found[f"captions.csv, row {count + 3}"] == "column 'image': no value"
    assert (index.images_read, index.rows_read) == (1 + len(bad), count + 3)
    assert [file.path for file in index.files] == ["good.jpg"]


def test_a_missing_image_is_listed_once_with_the_rows_it_costs(workplace):
    workplace.filled(2)
    workplace.table([("0.jpg", "a"), ("gone.jpg", "b"), ("gone.jpg", "c")])
    [entry] = workplace.fetch().left_out
    assert (entry.path, entry.reason, entry.rows) == ("gone.jpg", "missing file", 2)


def test_a_name_matches_in_either_unicode_form(workplace):
    composed, decomposed = (normalize(form, "Zoë/café.jpg") for form in ("NFC", "NFD"))
    mixed = normalize("NFC", "Noël") + normalize("NFD", "/café.jpg")
    workplace.image(decomposed)
    workplace.image(mixed, shade=9)
    rows = [(composed, "a"), (decomposed, "b"), (normalize("NFC", mixed), "c")]
    workplace.table(rows, normalize("NFD", "légendes.csv"))
    index = workplace.fetch(tables=normalize("NFC", "légendes.csv"))
    assert index.left_out == []
    assert [row["image"] for row in rows_of(workplace)] == [decomposed, decomposed, mixed]


def test_hidden_files_are_no_tables(workplace):
    workplace.filled(2)
    for name in ("._captions", "__MACOSX/._captions", ".ipynb_checkpoints/a", ".~lock.captions"):
        workplace.table([("no.jpg", "no")], f"{name}.csv")
    assert len(workplace.fetch(tables="**/*.csv").files) == 2
    with pytest.raises(ConfigError, match="no file in"):
        workplace.fetch(tables="._*.csv")


CELLS = {
    "text": ("one", ["one"], []),
    "a number as text": ("12", ["12"], []),
    "a word for nothing": ("nan", ["nan"], []),
    "a list": (["one", "two"], ["one", "two"], []),
    "lists in a list": ([["one"], ["two", "three"]], ["one", "two", "three"], []),
    "some empty": (["one", "", None, float("nan")], ["one"], ["no caption"] * 3),
    "nothing": (None, [], ["no caption"]),
    "NaN": (float("nan"), [], ["no caption"]),
    "an empty list": ([], [], ["no caption"]),
    "a number": (12, [], ["'words': a value of type int, not text"]),
    "a Boolean": (True, [], ["'words': a value of type bool, not text"]),
    "an object": ({"raw": "one"}, [], ["'words': a value of type dict, not text"]),
    "a list of objects": ([{"raw": "one"}], [], ["'words': a value of type dict, not text"]),
    "a list with a number": (["one", 2], [], ["'words': a value of type int, not text"]),
    "a list of Python as text": ("['one', \"it's\"]", [], ["'words': a list written as text"]),
    "a list of JSON as text": ('[ "one" ]', [], ["'words': a list written as text"]),
    "bytes": (b"one", [], ["'words': a value of type bytes, not text"]),
    "a date": (datetime.date(2026, 1, 1), [], ["'words': a value of type date, not text"]),
}


@pytest.mark.parametrize("kind", CELLS)
def test_a_caption_is_a_text_or_one_of_a_list_of_texts(workplace, kind):
    cell, captions, reasons = CELLS[kind]
    workplace.image("0.jpg")
    (workplace.mine / "tables").mkdir()
    good, other = ({"image": "0.jpg", "words": words} for words in ("fine", cell))
    (workplace.mine / "tables/good.jsonl").write_text(json.dumps(good))
    if isinstance(cell, bytes | datetime.date):  # JSON has no such values
        pq.write_table(pa.Table.from_pylist([other]), workplace.mine / "tables/other.parquet")
    else:
        (workplace.mine / "tables/other.jsonl").write_text(json.dumps(other))
    index = workplace.fetch(tables="tables/*", columns={"caption": "words"})
    assert sorted(row["caption"] for row in rows_of(workplace)) == sorted([*captions, "fine"])
    assert sum(entry.rows for entry in index.left_out) == len(reasons)
    for entry in index.left_out:
        assert entry.path.endswith("row 1")
        assert entry.reason.endswith(reasons[0])
    assert index.rows_read == 1 + len(captions) + len(reasons)


def test_other_columns_hold_text_or_numbers(workplace):
    workplace.image("0.jpg")
    cells = [{"rank": 1}, {"rank": float("nan")}, {"rank": "2"}, {"rank": [3]}, {"rank": None}]
    lines = [json.dumps({"image": "0.jpg", "caption": "a", **cell}) for cell in cells]
    lines.append(json.dumps({"image": ["0.jpg"], "caption": "a"}))
    (workplace.mine / "a.jsonl").write_text("\n".join(lines))
    index = workplace.fetch(tables="*.jsonl", columns={"caption": "caption", "rank": "rank"})
    assert [row["rank"] for row in rows_of(workplace)] == [1, None, 2, None]
    assert reasons(index) == {
        "a.jsonl, row 4": "column 'rank': a value of type list, not text",
        "a.jsonl, row 6": "column 'image': a value of type list, not text",
    }


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"path": "/no/such/folder"}, "datasets.mine.path: there is no folder '/no/such/folder'"),
        ({"tables": "*.parquet"}, "matches '*.parquet'"),
        ({"tables": "../*.csv"}, "must stay inside path"),
        ({"tables": "/etc/*"}, "must stay inside path"),
        (
            {"columns": {"caption": "Caption"}},
            "datasets.mine.columns.caption: captions.csv has no column 'Caption'; "
            "it has: image, caption",
        ),
        ({"image": "{contest}.jpg"}, "datasets.mine.image ({contest}): captions.csv has no column"),
        ({"split": "part"}, "datasets.mine.split: captions.csv has no column 'part'"),
        (
            {"separator": ";"},
            "datasets.mine.separator: captions.csv seems to have the separator ','; set it here",
        ),
    ],
)
def test_a_wrong_setting_is_one_sentence_that_names_it(workplace, changes, says):
    workplace.filled(1)
    with pytest.raises(ConfigError) as error:
        workplace.fetch(**changes)
    assert says in str(error.value)
    assert not workplace.index.exists()


@pytest.mark.parametrize("header", ["image;caption", "photo;text", '"image";"caption"'])
def test_a_table_with_another_separator_says_so(workplace, header):
    (workplace.mine / "captions.csv").write_text(f"{header}\n0.jpg;Hello, you\n")
    with pytest.raises(ConfigError, match="separator"):
        workplace.fetch()


def test_a_dataset_without_a_usable_row_is_an_error_that_tells_the_first_reasons(workplace):
    workplace.table([("a.jpg", "x"), ("b.jpg", "y")])
    with pytest.raises(DataError, match=r"no row can be used \(a.jpg: missing file; b.jpg"):
        workplace.fetch()


def test_a_column_may_name_the_splits(workplace):
    workplace.filled(3)
    parts = ["Training", "val", "nonsense"]
    workplace.table(
        [(f"{n}.jpg", "c", part) for n, part in enumerate(parts)],
        header=("image", "caption", "part"),
    )
    index = workplace.fetch(split="part")
    assert [row["split"] for row in rows_of(workplace)] == ["train", "validation"]
    assert "'nonsense'" in reasons(index)["captions.csv, row 3"]


def test_the_best_rank_comes_first_and_without_ranks_the_first_row():
    rows = [{"image": "a", "rank": rank, "n": n} for n, rank in enumerate(["3", "nan", "1", "x"])]
    assert [row["n"] for row in best_ranked(rows, 2)] == [0, 2]
    unranked = [{"image": image, "n": n} for n, image in enumerate("aabab")]
    assert [row["n"] for row in best_ranked(unranked, 2)] == [0, 1, 2, 4]
