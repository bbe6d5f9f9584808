"""Winoground fetched: drawn, from a table of this machine, or from the hub."""

import shutil

import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drawings import drawing, encoded
from PIL import Image

from feedrate.config.errors import ConfigError
from feedrate.config.workflow import GeneratedExamples, HubExamples, LocalExamples
from feedrate.data.manifest import DataError
from feedrate.data.winoground import fetch_winoground, invent_pair, read_winoground

TOKEN = "hf_secret_secret"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
CAPTIONS = ("the cat sees the dog", "the dog sees the cat")


def fetch(name, settings, out):
    """Fetch a set and read it."""
    fetch_winoground(name, settings, out)
    return read_winoground(out)


class Place:
    """Where a copy is fetched to, and a folder of the user's."""

    def __init__(self, root):
        self.mine = root / "mine"
        self.mine.mkdir()
        self.out = root / "resources/winoground/mine/examples.json"

    def fetch(self, **settings):
        local = LocalExamples(path=str(settings.pop("path", self.mine)), **settings)
        return fetch("mine", local, self.out)

    def row(self, number=0, **changes):
        first, second = CAPTIONS
        return {
            "id": number,
            "image_0": {"bytes": encoded(drawing(shade=number)), "path": f"ex_{number}_img_0.jpg"},
            "image_1": {"bytes": encoded(drawing(shade=90 + number)), "path": None},
            "caption_0": first,
            "caption_1": second,
            "tag": "Noun Phrase",
        } | changes

    def parquet(self, rows, name="test-00000-of-00001.parquet"):
        (self.mine / "data").mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), self.mine / "data" / name)


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def error_of(work):
    with pytest.raises((DataError, ConfigError)) as error:
        work()
    assert "\n" not in str(error.value)
    return str(error.value)


# The stand-in


def test_the_stand_in_has_captions_of_the_same_words(tmp_path):
    settings = GeneratedExamples(examples=12)
    found = fetch("g", settings, tmp_path / "g/examples.json")
    assert [example.id for example in found.examples] == list(range(12))
    for example in found.examples:
        first, second = example.captions
        assert first != second
        assert sorted(first.split()) == sorted(second.split())
        assert len(set(example.images)) == 2
    assert len({example.captions for example in found.examples}) == 12
    assert found.copy == "generated"
    assert sorted(p.name for p in (tmp_path / "g").iterdir()) == ["examples.json", "images"]


def test_it_is_the_same_for_the_same_seed_and_longer_for_more_examples(tmp_path):
    made = {
        (seed, count): fetch(
            "g",
            GeneratedExamples(seed=seed, examples=count),
            tmp_path / f"{seed}-{count}/examples.json",
        )
        for seed, count in ((20, 3), (20, 4), (21, 3))
    }
    assert made[20, 3].examples == made[20, 4].examples[:3]
    assert made[20, 3].sha256.items() <= made[20, 4].sha256.items()
    assert made[20, 3].examples[0].captions != made[21, 3].examples[0].captions


def test_the_caption_says_what_the_drawing_shows():
    for number in range(0, 40, 2):
        scenes, captions = invent_pair(20, number)
        for scene, caption in zip(scenes, captions, strict=True):
            thing, figure = (
                caption.index(f"the {scene.paint} {scene.thing}"),
                caption.index(f"the {scene.figure}"),
            )
            left, right = caption.index("on the left"), caption.index("on the right")
            assert (figure < thing) == ((left < right) == scene.left)


# A table of this machine


def test_parquet_with_images_in_it_is_read(place):
    place.parquet([place.row(n) for n in range(3)])
    found = place.fetch()
    assert [example.id for example in found.examples] == [0, 1, 2]
    assert found.examples[1].captions == CAPTIONS
    assert found.copy == "folder (mine)"
    for example in found.examples:
        for image in example.images:
            with Image.open(place.out.parent / image) as opened:
                assert opened.format == "JPEG"


def test_a_table_alone_may_be_named(place):
    place.parquet([place.row()], "mine.parquet")
    place.parquet([place.row(1)], "other.parquet")
    found = place.fetch(path=place.mine / "data/mine.parquet")
    assert [example.id for example in found.examples] == [0]


def test_a_picture_that_cannot_be_read_stops_it_in_one_sentence(place):
    place.parquet([place.row(0), place.row(1, image_1={"bytes": b"\xff\xd8 none", "path": None})])
    said = error_of(place.fetch)
    assert said.startswith("winoground_sets.mine: example 1: image_1: ")
    assert "not an image of the kinds" in said
    assert not place.out.exists()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"caption_1": "  "}, "example 1: a caption is empty"),
        ({"caption_0": None}, "example 1: a caption is empty"),
        ({"id": 0}, "example 1: its id 0 is not a number, or occurs twice"),
        ({"image_0": None}, "row 2: no image"),
    ],
)
def test_a_row_of_no_use_stops_it(place, change, reason):
    place.parquet([place.row(0), place.row(1, **change)])
    assert reason in error_of(place.fetch)


def test_a_caption_that_is_no_text_stops_it(place):
    place.parquet([place.row(0, caption_1=7)])
    assert "example 0: column 'caption_1': a value of type int" in error_of(place.fetch)


def test_a_missing_column_is_named_with_those_there_are(place):
    row = place.row()
    del row["caption_1"]
    place.parquet([row])
    said = error_of(place.fetch)
    assert "caption_1 missing" in said
    assert "caption_0" in said


def test_a_wrong_path_is_told(place):
    said = error_of(lambda: place.fetch(path="no/such"))
    assert said == "no/such: there is no Parquet file"


# The hub


@pytest.fixture
def hub(monkeypatch, place):
    """The hub's client, which gives the user's folder as its cache, or refuses."""
    asked = []

    def download(name, **options):
        asked.append((name, options))
        if isinstance(hub.answer, Exception):
            raise hub.answer
        return str(hub.answer)

    hub = download
    hub.answer = place.mine
    hub.asked = asked
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return hub


HUB = HubExamples(name="facebook/winoground", revision="main")


def test_the_hubs_parquet_is_taken_at_its_revision(hub, place):
    place.parquet([place.row(), place.row(1)])
    hub.answer = place.mine.rename(place.mine.with_name(COMMIT))
    found = fetch("hub", HUB, place.out)
    assert len(found.examples) == 2
    assert found.copy == f"hub (facebook/winoground at {COMMIT})"
    name, options = hub.asked[0]
    assert (name, options["revision"]) == ("facebook/winoground", "main")
    assert (options["repo_type"], options["token"]) == ("dataset", TOKEN)
    assert options["allow_patterns"] == ["*.parquet"]
    assert TOKEN not in place.out.read_text()


def test_a_revision_without_parquet_is_told(hub, place):
    said = error_of(lambda: fetch("hub", HUB, place.out))
    assert said.endswith("there is no Parquet file")


def test_a_copy_that_is_not_whole_is_told(place):
    place.parquet([place.row()])
    found = place.fetch()
    image = place.out.parent / found.examples[0].images[0]
    image.unlink()
    assert "No such file" in error_of(lambda: read_winoground(place.out))
    place.out.write_text("{}")
    assert "not of this version" in error_of(lambda: read_winoground(place.out))
    shutil.rmtree(place.out.parent)
    assert "has not been fetched" in error_of(lambda: read_winoground(place.out))
