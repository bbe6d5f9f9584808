import os

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
        "a\0b": "not a path of a file",
        "x" * 300: "file name too long",
        "": "no image is named",
    }
    good = ("good.jpg", "fine"), (str(workplace.mine / "good.jpg"), "an absolute path within")
    blank = ("good.jpg", ""), ("good.jpg", " \t\n")
    workplace.table([*good, *((name, "caption") for name in bad), *blank, ("good.jpg", "a", "b")])
    index = workplace.fetch()
    assert [row["caption"] for row in rows_of(workplace)] == ["fine", "an absolute path within"]
    found = reasons(index)
    for name, reason in bad.items():
        assert found[name]
        assert reason is None or found[name] == reason
    count = len(good) + len(bad)
    assert found[f"captions.csv, row {count + 1}"] == "no caption"
    assert found[f"captions.csv, row {count + 2}"] == "no caption"
    assert found[f"captions.csv, row {count + 3}"] == "more fields than the header has"
    assert [file.path for file in index.files] == ["good.jpg"]


def test_a_missing_image_is_listed_once_with_the_rows_it_costs(workplace):
    workplace.filled(2)
    workplace.table([("0.jpg", "a"), ("gone.jpg", "b"), ("gone.jpg", "c")])
    [entry] = workplace.fetch().left_out
    assert (entry.path, entry.reason, entry.rows) == ("gone.jpg", "missing file", 2)


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
    ],
)
def test_a_wrong_setting_is_one_sentence_that_names_it(workplace, changes, says):
    workplace.filled(1)
    with pytest.raises(ConfigError) as error:
        workplace.fetch(**changes)
    assert says in str(error.value)
    assert not workplace.index.exists()


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
