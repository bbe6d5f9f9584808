import json
import os

import pytest

from feedrate.core.files import digest_file, write_json
from feedrate.flow.digests import DigestCache, edited, folder_state, weights_state


@pytest.fixture
def cache(tmp_path):
    return DigestCache(tmp_path / "cache.json")


@pytest.fixture
def index(tmp_path):
    raw = tmp_path / "raw"
    (raw / "images").mkdir(parents=True)
    (raw / "rows.parquet").write_bytes(b"rows")
    (raw / "images/1.jpg").write_bytes(b"one")
    path = raw / "index.json"
    files = [
        {"path": name, "size": (raw / name).stat().st_size, "sha256": digest_file(raw / name)}
        for name in ("rows.parquet", "images/1.jpg")
    ]
    known = {"dataset": "small", "source": "hub", "rows": files[0], "files": files[1:]}
    write_json(path, known | {"left_out": []})
    return path


def test_unchanged_or_touched_files_are_no_edit(index, cache):
    assert edited(index, cache) == ""
    os.utime(index.parent / "images/1.jpg", (1, 1))
    assert edited(index, cache) == ""


def test_an_edit_has_a_digest_of_its_own_and_undoing_it_none(index, cache):
    image = index.parent / "images/1.jpg"
    image.write_bytes(b"another")
    first = edited(index, cache)
    image.write_bytes(b"a third one")
    second = edited(index, cache)
    image.unlink()
    third = edited(index, cache)
    assert len({first, second, third, ""}) == 4
    image.write_bytes(b"one")
    assert edited(index, cache) == ""
    (index.parent / "rows.parquet").write_bytes(b"other rows")
    assert edited(index, cache) not in {"", first, second, third}


def test_without_an_index_or_with_a_folder_source_there_is_no_edit(index, cache):
    assert edited(index.with_name("none.json"), cache) == ""
    value = json.loads(index.read_text())
    index.write_text(json.dumps(value | {"root": str(index.parent)}))
    (index.parent / "images/1.jpg").write_bytes(b"another")
    assert edited(index, cache) == ""
    index.write_text("{")
    assert edited(index, cache) == ""


def test_a_folder_s_state_follows_names_and_contents_only(tmp_path, cache):
    folder = tmp_path / "mine"
    assert folder_state(folder, cache) == "absent"
    (folder / "a").mkdir(parents=True)
    (folder / "a/1.jpg").write_bytes(b"one")
    state = folder_state(folder, cache)
    (folder / ".hidden").write_bytes(b"x")
    os.utime(folder / "a/1.jpg", (5, 5))
    assert folder_state(folder, cache) == state
    (folder / "a/1.jpg").rename(folder / "a/2.jpg")
    renamed = folder_state(folder, cache)
    (folder / "a/2.jpg").write_bytes(b"twice")
    changed = folder_state(folder, cache)
    assert len({state, renamed, changed}) == 3


def test_weights_are_what_a_model_is_read_from_and_nothing_else(tmp_path, cache):
    folder = tmp_path / "model"
    assert weights_state(folder, cache) == "absent"
    (folder / "checkpoint-5").mkdir(parents=True)
    for name in ("model.safetensors", "config.json", "vocab.txt"):
        (folder / name).write_text("1")
    state = weights_state(folder, cache)
    for name in ("README.md", "optimizer.pt", "checkpoint-5/model.safetensors"):
        (folder / name).write_text("beside")
    os.utime(folder / "model.safetensors", (5, 5))
    assert weights_state(folder, cache) == state
    seen = {state}
    for name in ("model.safetensors", "config.json", "vocab.txt"):
        (folder / name).write_text("other")
        seen.add(weights_state(folder, cache))
    (folder / "vocab.txt").unlink()
    seen.add(weights_state(folder, cache))
    assert len(seen) == 5


def test_special_files_and_loops_neither_block_nor_fail(tmp_path, cache):
    folder = tmp_path / "mine"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    (folder / "up").symlink_to("..")
    (folder / "1.jpg").write_bytes(b"one")
    state = folder_state(folder, cache)
    assert state == folder_state(folder, cache)
    (folder / "1.jpg").write_bytes(b"two!")
    assert folder_state(folder, cache) != state
