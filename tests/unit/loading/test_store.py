"""The store of the level `cache`: what it holds, and what it refuses."""

import json
import os
import signal
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
import torch
from PIL import Image

from feedrate.config.settings import LoaderSettings, ModelSettings, Settings
from feedrate.core.files import digest_file
from feedrate.data.manifest import (
    PIXELS,
    STORE_INDEX,
    DataError,
    check_store,
    read_store,
    store_folder,
    store_spec,
)
from feedrate.jobs import store as store_writer
from feedrate.jobs.store import write_store
from feedrate.loading.decoders.cache import Store
from feedrate.loading.decoders.host import crop_of

SETTINGS = Settings(
    model=ModelSettings(name="bridgetower", size="tiny"),
    loader=LoaderSettings(decode="cache", max_tokens=10),
)
PX = 32


def changed(**values):
    return msgspec.structs.replace(SETTINGS, loader=LoaderSettings(decode="cache", **values))


@pytest.fixture
def own(tiny_prepared, tmp_path):
    """A prepared dataset that a test may change."""
    import shutil

    return shutil.copytree(tiny_prepared, tmp_path / "prepared")


def make(prepared, tokenizer, settings=SETTINGS, px=PX):
    folder = store_folder(settings, prepared)
    model = SimpleNamespace(tokenizer=tokenizer, image_px=px, column="caption")
    write_store(prepared, store_spec(settings), model, folder / STORE_INDEX, 1)
    return folder


def test_pictures_of_all_sizes_and_modes(own, tokenizer):
    rng = np.random.default_rng(2)
    paths = sorted((own / "images").iterdir())
    for i, path in enumerate(paths):
        width, height = (int(n) for n in rng.integers(8, 300, 2))
        shape = (height, width) if i % 3 == 0 else (height, width, 3)
        Image.fromarray(rng.integers(0, 255, shape, dtype=np.uint8)).save(path, "JPEG")
    store = Store(make(own, tokenizer), "test")
    for row in range(6):
        path = own / f"images/test-{row // 2}.jpg"
        assert torch.equal(store.read(row), crop_of(path, path.read_bytes(), PX))


def test_the_index_says_what_it_was_made_from(own, tokenizer, capsys):
    folder = make(own, tokenizer)
    index = read_store(folder)
    assert index.spec == store_spec(SETTINGS)
    assert index.manifest == digest_file(own / "manifest.json")
    assert index.pictures == len(list((own / "images").iterdir()))
    grey = sum(Image.open(p).mode == "L" for p in (own / "images").iterdir())
    assert index.size_bytes == PX * PX * (grey + 3 * (index.pictures - grey))
    assert set(index.files) == {p.name for p in folder.iterdir()} - {STORE_INDEX}
    assert all(digest_file(folder / name) == digest for name, digest in index.files.items())
    # The size is told before anything is written.
    assert f"store of {index.pictures} pictures: 37 KiB" in capsys.readouterr().err


def test_another_spec_is_another_store():
    keys = {
        store_spec(settings).key
        for settings in (
            SETTINGS,
            changed(max_tokens=11),
            changed(max_tokens=10, scaled_decode=True),
            changed(max_tokens=10, label="label"),
            msgspec.structs.replace(SETTINGS, model=ModelSettings(name="vit", size="tiny")),
        )
    }
    assert len(keys) == 5
    same = changed(max_tokens=10, workers=2)
    assert store_spec(same) == store_spec(SETTINGS)
    otherwise = msgspec.structs.replace(SETTINGS.model, attention="sdpa", checkpointing=True)
    assert store_spec(msgspec.structs.replace(same, model=otherwise)) == store_spec(SETTINGS)
    assert store_spec(Settings(model=SETTINGS.model)) is None


def test_a_store_of_other_data_is_refused(own, tokenizer):
    folder = make(own, tokenizer)
    Store(folder, "train")
    manifest = json.loads((own / "manifest.json").read_text())
    (own / "manifest.json").write_text(json.dumps(manifest | {"dataset": "other"}))
    with pytest.raises(DataError, match="was made from other data; delete it and run again"):
        Store(folder, "train")


def test_a_missing_a_foreign_and_a_cut_store_are_refused(own, tokenizer, tmp_path):
    with pytest.raises(DataError, match=r"no such file; decode: cache needs the store"):
        read_store(tmp_path)
    folder = make(own, tokenizer)
    pixels = np.load(folder / PIXELS)
    np.save(folder / PIXELS, pixels[:-10])
    with pytest.raises(DataError, match="does not match its index"):
        Store(folder, "train")
    (folder / STORE_INDEX).write_text('{"version": 9}')
    with pytest.raises(DataError, match="not of this version"):
        read_store(folder)


def test_checksums_find_a_changed_and_a_missing_file(own, tokenizer):
    folder = make(own, tokenizer)
    check_store(folder)
    pixels = np.load(folder / PIXELS)
    pixels[1000] ^= 1  # the size stays: only the checksum sees it
    np.save(folder / PIXELS, pixels)
    Store(folder, "train")
    told = r"pixels\.npy does not match its recorded checksum: delete the folder .* and run again"
    with pytest.raises(DataError, match=told):
        check_store(folder)
    (folder / PIXELS).unlink()
    with pytest.raises(DataError, match=r"pixels\.npy cannot be read \(No such file"):
        check_store(folder)


def test_a_picture_that_cannot_be_decoded_leaves_no_store(own, tokenizer):
    (own / "images/train-3.jpg").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"train-3\.jpg: cannot be decoded"):
        make(own, tokenizer)
    assert not list(own.parent.glob("store/*/*"))


def test_a_failed_rebuild_leaves_the_old_store(own, tokenizer):
    folder = make(own, tokenizer)
    before, stores = digest_file(folder / PIXELS), set(folder.parent.glob("*store*"))
    (own / "images/train-3.jpg").write_bytes(b"nothing")
    with pytest.raises(DataError):
        make(own, tokenizer)
    assert digest_file(folder / PIXELS) == before
    assert set(folder.parent.glob("*store*")) == stores


def die(*_picture):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed_leaves_no_store_and_a_sentence(own, tokenizer, monkeypatch):
    monkeypatch.setattr(store_writer, "_write_picture", die)
    with pytest.raises(DataError, match="a process that decodes pictures for the store was killed"):
        make(own, tokenizer)
    assert not list(own.parent.glob("store/*/*"))


def test_a_disk_that_is_too_small_is_told_before_writing(own, tokenizer, monkeypatch):
    disk = SimpleNamespace(free=10_000, total=1_000_000)
    monkeypatch.setattr(store_writer.shutil, "disk_usage", lambda _: disk)
    with pytest.raises(DataError, match=r"the store needs 37 KiB, and 9\.77 KiB of 0\.954 MiB"):
        make(own, tokenizer)
    assert not list(own.parent.glob("store/*/*"))
