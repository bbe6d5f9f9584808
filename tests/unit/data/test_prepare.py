import json
import random
import subprocess

import pyarrow.parquet as pq
import pytest
from drawings import drawing, encoded
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

import warm
from feedrate.data.manifest import DataError, check_prepared, read_manifest
from feedrate.data.prepare import VOCABULARY, share_out, train_tokenizer


def report_of(workplace):
    return json.loads((workplace.manifest.parent / "data_report.json").read_text())


def samples_of(workplace):
    return pq.read_table(workplace.manifest.parent / "samples.parquet").to_pylist()


def test_all_is_laid_out_and_counted(workplace):
    workplace.filled(10).fetch()
    manifest = workplace.prepare()
    assert check_prepared(workplace.manifest.parent) == manifest
    assert {split: count.rows for split, count in manifest.splits.items()} == {
        "train": 8,
        "validation": 1,
        "test": 1,
    }
    assert set(manifest.files) == {
        "samples.parquet",
        "checksums.json",
        "tokenizer/tokenizer.json",
        "tokenizer/tokenizer_config.json",
    }
    samples = samples_of(workplace)
    assert [sample["sample_id"] for sample in samples] == [f"{n:06d}" for n in range(10)]
    assert list(samples[0])[:4] == ["sample_id", "split", "image", "caption"]
    assert "origin" not in samples[0]
    for sample in samples:
        assert (workplace.manifest.parent / sample["image"]).is_file()
    report = report_of(workplace)
    assert (report["images"], report["samples"], report["rows_left_out"]) == (10, 10, 0)
    assert report["width_px"] == dict.fromkeys(report["width_px"], 64.0)
    assert report["splits"]["train"] == {"rows": 8, "images": 8}


def test_extra_columns_reach_the_samples(workplace):
    workplace.image("1.jpg")
    workplace.table([("1.jpg", "c", 3, 1.5)], header=("image", "caption", "place", "score"))
    workplace.fetch(columns={"caption": "caption", "rank": "place", "score": "score"})
    workplace.prepare()
    [sample] = samples_of(workplace)
    assert (sample["rank"], sample["score"]) == (3, 1.5)


def test_a_contest_is_in_one_split(workplace):
    for number in range(12):
        workplace.image(f"{number}.jpg", shade=5 * number)
    rows = [(f"{n % 12}.jpg", f"caption {n}", n % 6) for n in range(36)]
    workplace.table(rows, header=("image", "caption", "contest"))
    columns = {"caption": "caption", "contest_number": "contest"}
    workplace.fetch(columns=columns)
    workplace.prepare(columns=columns, validation_share=0.3, test_share=0.3)
    splits = splits_of(workplace, "contest_number")
    assert all(len(names) == 1 for names in splits.values())
    assert set.union(*splits.values()) == {"train", "validation", "test"}


def splits_of(workplace, key):
    splits = {}
    for sample in samples_of(workplace):
        splits.setdefault(sample[key], set()).add(sample["split"])
    return splits


def test_one_picture_is_in_one_split_whatever_its_names_and_contests(workplace):
    rows = []
    for number in range(40):  # two contests of one picture, two pictures of one contest, and so on
        workplace.image(f"{number}.jpg", shade=5 * (number // 2))
        rows.append(
            (f"{number}.jpg", f"caption {number}", (number + 1) // 2 if number < 12 else "")
        )
    workplace.table(rows, header=("image", "caption", "contest"))
    columns = {"caption": "caption", "contest_number": "contest"}
    workplace.fetch(columns=columns)
    workplace.prepare(columns=columns, validation_share=0.3, test_share=0.3)
    assert {len(names) for names in splits_of(workplace, "image").values()} == {1}
    contests = splits_of(workplace, "contest_number")
    del contests[None]
    assert len(set.union(*contests.values())) == 1  # the first twelve are one chain
    assert report_of(workplace)["images_in_several_splits"] == 0


def test_splits_of_a_column_stay_and_pictures_in_several_are_counted(workplace):
    for number in range(4):
        workplace.image(f"{number}.jpg", shade=9 * (number % 3))
    parts = [(f"{n}.jpg", "c", part) for n, part in enumerate(("train", "train", "test", "test"))]
    workplace.table(parts, header=("image", "caption", "part"))
    workplace.fetch(split="part")
    assert workplace.prepare(split="part").splits["test"].rows == 2
    assert report_of(workplace)["images_in_several_splits"] == 1


def test_preparing_twice_gives_the_identical_folder(workplace, tmp_path):
    workplace.filled(6)
    workplace.image("odd.png", encoded(drawing(mode="RGBA", shade=99), "PNG"))
    workplace.table([*((f"{n}.jpg", f"caption {n}") for n in range(6)), ("odd.png", "an odd one")])
    workplace.fetch()
    first = workplace.prepare(workers=2)
    text = workplace.manifest.read_bytes()
    workplace.index.unlink()
    workplace.fetch()
    assert workplace.prepare(workers=1) == first
    assert workplace.manifest.read_bytes() == text


def test_one_other_image_is_another_manifest(workplace):
    workplace.filled(4).fetch()
    before = workplace.prepare()
    workplace.image("2.jpg", shade=111)
    after = workplace.prepare()
    assert before.files["checksums.json"] != after.files["checksums.json"]
    assert report_of(workplace)["changed_since_fetch"] == ["2.jpg"]


ODD = {
    "cmyk.jpg": encoded(drawing(mode="CMYK", shade=1)),
    "sixteen.png": encoded(drawing(mode="L", shade=2).convert("I;16"), "PNG"),
    "palette.png": encoded(drawing(mode="P", shade=3), "PNG"),
    "alpha.png": encoded(drawing(mode="RGBA", shade=4), "PNG"),
    "animated.gif": encoded(drawing(shade=5), "GIF", save_all=True, append_images=[drawing()]),
    "wrong.gif": encoded(drawing(shade=6)),
    "a name with spaces.jpg": encoded(drawing(shade=7)),
}
BROKEN = {
    "zero.jpg": b"",
    "truncated.jpg": encoded(drawing((600, 400)))[:4000],
    "text.jpg": b"not an image",
}


def test_every_kind_of_file_becomes_a_sample_or_is_listed(workplace):
    for name, data in {**ODD, **BROKEN}.items():
        workplace.image(name, data)
    rows = [(name, f"caption of {name}") for name in [*ODD, *BROKEN, "missing.jpg"]]
    workplace.table([*rows, ("cmyk.jpg", "  ")])
    workplace.fetch()
    workplace.prepare(workers=2)
    report = report_of(workplace)
    assert len(samples_of(workplace)) == report["samples"] == len(ODD)
    listed = {entry["path"]: entry["reason"] for entry in report["left_out"]}
    assert listed.keys() == {*BROKEN, "missing.jpg", f"captions.csv, row {len(rows) + 1}"}
    assert report["rows_left_out"] == sum(report["rows_left_out_by_reason"].values()) == 5
    assert report["rows_left_out_by_reason"]["missing file"] == 1
    assert (report["rows_read"], report["images_read"]) == (len(rows) + 1, len(rows))
    assert report["images_left_out"] == len(BROKEN) + 1
    assert report["converted"] == {
        "16-bit to RGB": 1,
        "CMYK to RGB": 1,
        "GIF to JPEG": 1,
        "PNG to JPEG": 3,
        "first frame of several": 1,
        "narrow range stretched": 1,
        "palette to RGB": 2,
        "transparency on white": 1,
    }
    assert str(workplace.mine) not in json.dumps(report)


def test_above_the_share_left_out_by_both_steps_the_run_stops_with_the_list(workplace):
    workplace.filled(30)
    for number in range(10):
        workplace.image(f"{number}.jpg", b"broken")
    for number in range(10, 20):
        (workplace.mine / f"{number}.jpg").unlink()
    workplace.table([(f"{n}.jpg", "" if n in range(20, 25) else "c") for n in range(30)])
    workplace.fetch()
    with pytest.raises(DataError) as error:
        workplace.prepare(max_bad_share=0.8)
    listing = workplace.manifest.parent.with_name("prepared.rejected.json")
    message = str(error.value)
    assert "25 of 30 images and 25 of 30 rows are left out" in message
    assert "more than max_bad_share = 0.8 allows" in message
    assert str(listing) in message
    assert message.count("\n") == 21
    assert "and 5 more" in message
    assert len(json.loads(listing.read_text())) == 25
    assert not workplace.manifest.exists()
    assert workplace.prepare(max_bad_share=0.84).images == 5
    assert not listing.exists()


@pytest.mark.parametrize(("images", "rows", "stops"), [(2, 2, True), (1, 9, True), (1, 1, False)])
def test_images_and_rows_have_the_same_limit(workplace, images, rows, stops):
    """Of 10 images with 5 rows each, `images` are missing, and `rows` more have no caption."""
    workplace.filled(10)
    for number in range(images):
        (workplace.mine / f"{number}.jpg").unlink()
    captions = ["c"] * (50 - rows) + [""] * rows
    workplace.table([(f"{n % 10}.jpg", caption) for n, caption in enumerate(captions)])
    assert workplace.fetch(limit_per_image=1).rows_read == 50
    if stops:
        with pytest.raises(DataError, match=f"{images} of 10 images and"):
            workplace.prepare(max_bad_share=0.15)
    else:
        workplace.prepare(max_bad_share=0.15)
        assert report_of(workplace)["rows_left_out"] == 6


def test_a_dataset_with_nothing_to_train_on_is_an_error(workplace):
    workplace.filled(2)
    workplace.table(
        [("0.jpg", "a", "test"), ("1.jpg", "b", "test")], header=("image", "caption", "part")
    )
    workplace.fetch(split="part")
    with pytest.raises(DataError, match="training split would be empty; 2 samples"):
        workplace.prepare(split="part")


BETWEEN_RENAMES = (
    "rename = pathlib.Path.rename; pathlib.Path.rename = lambda a, b: (rename(a, b), die())"
)


@pytest.mark.parametrize(
    ("earlier", "moment"),
    [
        (True, "prepare.verify_images = die"),
        (True, "prepare.train_tokenizer = die"),
        (True, "prepare.digest_file = die"),
        (True, BETWEEN_RENAMES),
        (False, "prepare.write_table = die"),
        (False, BETWEEN_RENAMES),
    ],
)
def test_a_kill_at_any_moment_leaves_the_old_result_or_none_and_the_next_run_is_clean(
    workplace, earlier, moment
):
    workplace.filled(3).fetch()
    whole = workplace.prepare() if earlier else None
    code = (
        "import os, pathlib, sys, feedrate.data.prepare as prepare\n"
        "from feedrate.cli import jobs\n"
        "def die(*_): os.kill(os.getpid(), 9)\n"
        f"{moment}\n"
        "sys.exit(jobs.run('preprocess_dataset', sys.argv[1:]))"
    )
    arguments = ["--index", workplace.index, "--out", workplace.manifest]
    settings = json.dumps({"source": "folder", "path": str(workplace.mine)})
    words = [*map(str, arguments), "--settings", settings]
    done = subprocess.run([warm.python(), "-c", code, *words], check=False)
    assert done.returncode == -9
    folder = workplace.manifest.parent
    if moment != BETWEEN_RENAMES:
        assert folder.exists() == earlier
    if folder.exists():
        assert check_prepared(folder).images == 3
    assert workplace.prepare() == (whole or read_manifest(workplace.manifest))
    assert check_prepared(folder).images == 3
    assert {path.name for path in folder.parent.iterdir()} == {"prepared", "raw"}


def test_the_commands_end_with_one_sentence(workplace, tmp_path):
    workplace.filled(3)
    settings = json.dumps({"source": "folder", "path": str(workplace.mine)})

    def run(job, *arguments):
        command = [warm.python(), "-m", "feedrate", f"{job}_dataset", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    fetched = run("fetch", "--name", "mine", "--settings", settings, "--out", workplace.index)
    assert fetched.stdout == "fetched mine: 3 images; left out: 0 images, 0 rows\n", fetched.stderr
    paths = ["--index", workplace.index, "--out", workplace.manifest]
    prepared = run("preprocess", *paths, "--settings", settings)
    assert prepared.stdout.startswith("prepared mine: train 1, validation 1, test 1; 3 images")
    wrong = run("preprocess", *paths, "--settings", settings.replace("path", "pth"))
    assert wrong.returncode == 1
    assert "pth" in wrong.stderr
    assert "Traceback" not in wrong.stderr


GROUPS = st.lists(st.text(max_size=5), max_size=60)
SHARES = st.floats(0, 1)


@given(GROUPS, SHARES, SHARES, st.integers(0, 99), st.randoms())
def test_every_group_is_in_one_split_whatever_the_order(groups, validation, test, seed, random):
    splits = share_out(groups, validation, test, seed)
    assert splits.keys() == set(groups)
    random.shuffle(groups)
    assert share_out(groups * 2, validation, test, seed) == splits


@given(GROUPS, SHARES, SHARES)
def test_training_keeps_a_group_and_a_share_above_zero_gets_one_where_it_can(groups, val, test):
    splits = list(share_out(groups, val, test, 1).values())
    if splits:
        assert "train" in splits
    if len(splits) >= 2 and val > 0:
        assert "validation" in splits
    assert val > 0 or "validation" not in splits
    assert test > 0 or "test" not in splits


def test_shares_are_met():
    splits = list(share_out(map(str, range(100)), 0.1, 0.2, 20).values())
    assert (splits.count("validation"), splits.count("test")) == (10, 20)
    assert share_out(map(str, range(100)), 0.1, 0.2, 20) != share_out(
        map(str, range(100)), 0.1, 0.2, 21
    )


CAPTIONS = [f"A witch and {n} penguins on the moon" for n in range(200)]


def test_transformers_loads_it_with_roberta_s_special_tokens(tmp_path):
    train_tokenizer(CAPTIONS, tmp_path)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert tokenizer.convert_ids_to_tokens(range(5)) == ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    assert (tokenizer.bos_token_id, tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 1, 2)
    assert len(tokenizer) <= VOCABULARY
    batch = tokenizer(["A witch", "moon"], padding="max_length", max_length=12, truncation=True)
    assert {len(ids) for ids in batch["input_ids"]} == {12}
    ids = batch["input_ids"][1]
    assert ids[0] == 0
    assert ids[sum(batch["attention_mask"][1]) - 1] == 2
    assert ids[-1] == 1
    pair = tokenizer("moon", "witch")["input_ids"]
    assert pair.count(2) == 3


def test_the_same_captions_in_any_order_give_the_same_files(tmp_path):
    shuffled = random.Random(1).sample(CAPTIONS, len(CAPTIONS)) + CAPTIONS[:9]
    train_tokenizer(CAPTIONS, tmp_path / "a")
    train_tokenizer(shuffled, tmp_path / "b")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert json.loads((tmp_path / "a/tokenizer_config.json").read_text())["pad_token"] == "<pad>"
