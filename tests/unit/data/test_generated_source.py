import json

import pytest

from feedrate.config.workflow import Generated
from feedrate.core.files import digest_file, digest_value
from feedrate.data.drawing import invent
from feedrate.data.fetch import fetch_dataset
from feedrate.data.manifest import read_index
from feedrate.data.shapes import COLOURS, INKS, PAINTS
from feedrate.data.tables import SCHEMA, read_table

SMALL = Generated(train=7, validation=3, test=2)


@pytest.fixture(scope="module")
def fetched(tmp_path_factory):
    out = tmp_path_factory.mktemp("generated") / "raw/index.json"
    fetch_dataset("small", SMALL, out)
    return out


def test_rows_are_as_many_as_asked_and_have_the_whole_schema(fetched):
    rows = read_table(fetched.parent / "rows.parquet").rows
    assert [row["split"] for row in rows] == ["train"] * 7 + ["validation"] * 3 + ["test"] * 2
    assert set(SCHEMA) <= rows[0].keys()
    assert all(row[column] not in (None, "") for row in rows for column in SCHEMA)


def test_a_contest_lies_in_one_split_and_its_rows_are_worded_apart(fetched):
    rows = read_table(fetched.parent / "rows.parquet").rows
    splits = {}
    for row in rows:
        splits.setdefault(row["contest_number"], set()).add(row["split"])
    assert all(len(names) == 1 for names in splits.values())
    assert len(splits) < len(rows)
    assert len({row["caption"] for row in rows}) == len(rows)


def test_five_different_choices_of_which_the_label_names_the_contest_s(fetched):
    for row in read_table(fetched.parent / "rows.parquet").rows:
        assert len(set(row["caption_choices"])) == 5
        assert row["label"] in "ABCDE"
    labels = {row["label"] for row in read_table(fetched.parent / "rows.parquet").rows}
    assert len(labels) > 1


def test_the_rows_of_a_seed_are_those_of_earlier_versions(fetched):
    """A model learns other captions more or less well: other rows make all scores others."""
    rows = read_table(fetched.parent / "rows.parquet").rows
    assert digest_value(rows)[:16] == "9b3f0c80ead1b590"


def test_a_caption_to_choose_says_where_it_is_and_with_what(fetched):
    """So the drawing tells which is right: nobody need know the joke."""
    for row in read_table(fetched.parent / "rows.parquet").rows:
        scene = invent(SMALL.seed, row["contest_number"], SMALL.grey_share)
        right = row["caption_choices"]["ABCDE".index(row["label"])]
        assert scene.thing in right
        assert scene.place.name in right[0].lower() + right[1:]
        others = [text for text in row["caption_choices"] if text != right]
        assert not any(f" {scene.thing}" in text for text in others)


def test_the_index_lists_every_image_with_its_checksum(fetched):
    index = read_index(fetched)
    on_disk = {f"images/{path.name}" for path in (fetched.parent / "images").iterdir()}
    assert {file.path for file in index.files} == on_disk
    for file in index.files:
        path = fetched.parent / file.path
        assert file.sha256 == digest_file(path)
    assert (index.source, index.root, index.left_out) == ("generated", "", [])


def test_the_same_settings_give_the_same_index_and_another_seed_another(fetched, tmp_path):
    again, other = tmp_path / "a/index.json", tmp_path / "b/index.json"
    fetch_dataset("small", SMALL, again)
    assert json.loads(again.read_text()) == json.loads(fetched.read_text())
    fetch_dataset("small", Generated(train=1, validation=1, test=1, seed=1), other)
    assert not {f.sha256 for f in read_index(other).files} & {
        f.sha256 for f in read_index(fetched).files
    }


@pytest.mark.parametrize(("share", "paints"), [(0.0, COLOURS), (1.0, INKS)])
def test_the_paint_in_a_caption_does_not_tell_the_wrong_choices(tmp_path, share, paints):
    out = tmp_path / "raw/index.json"
    fetch_dataset("small", Generated(train=3, validation=1, test=1, grey_share=share), out)
    for row in read_table(out.parent / "rows.parquet").rows:
        for choice in row["caption_choices"]:
            assert next(paint for paint in PAINTS if f" {paint} " in choice) in paints
