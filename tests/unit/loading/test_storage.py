"""Files from memory, from the disk, or late."""

import os

import pytest
from msgspec import UNSET

from feedrate.config.settings import LoaderSettings
from feedrate.config.spec import loader_faults
from feedrate.devices.base import UnsupportedError
from feedrate.loading import stages, storage
from feedrate.loading.storage import fetch, resident_bytes, settle

SIZE = 50_000


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / f"{number}.jpg" for number in range(3)]
    for path in paths:
        path.write_bytes(os.urandom(SIZE))
    return paths


def drops(path):
    """Whether the file system of the test gives pages up when it is asked to."""
    storage._drop(path)
    return resident_bytes(path) == 0


def test_every_kind_reads_the_same_bytes(files):
    for kind in (UNSET, "warm", "cold", 1.0):
        assert fetch(files[0], kind) == files[0].read_bytes()


def test_a_cold_read_comes_from_the_disk_each_time(files, monkeypatch):
    if not drops(files[0]):
        pytest.skip("this file system keeps pages in memory")
    seen = []
    advise = os.posix_fadvise

    def watched(*arguments):
        advise(*arguments)
        seen.append(resident_bytes(files[0]))

    monkeypatch.setattr(os, "posix_fadvise", watched)
    for _ in range(2):
        fetch(files[0], "cold")
    assert seen == [0, 0]
    fetch(files[0], "warm")
    assert len(seen) == 2


def test_latency_belongs_to_opening(files, monkeypatch):
    monkeypatch.setattr(stages, "_here", None)
    recorder = stages.Recorder(0)
    recorder.attach(0)
    with recorder.recording():
        fetch(files[0], 30.0)
        found = recorder.spans(1, 1)
    assert found["open"]["seconds"] >= 0.03
    assert set(found) == {"open", "read"}


def test_files_are_brought_in_and_out(files):
    if not drops(files[0]):
        pytest.skip("this file system keeps pages in memory")
    settle(files, "cold")
    assert sum(map(resident_bytes, files)) == 0
    settle(files, "warm")
    assert sum(map(resident_bytes, files)) == 3 * SIZE


@pytest.mark.parametrize(
    ("kind", "resident", "message"),
    [
        ("cold", SIZE, "memory holds 100%"),
        ("warm", SIZE // 2, "memory holds 50%"),
    ],
)
def test_a_file_system_that_does_otherwise_is_refused(files, monkeypatch, kind, resident, message):
    monkeypatch.setattr(storage, "resident_bytes", lambda _: resident)
    with pytest.raises(UnsupportedError, match=message):
        settle(files, kind)


def test_what_cannot_be_checked_is_told(files, monkeypatch, capsys):
    monkeypatch.setattr(os, "access", lambda *_: False)
    settle(files, "cold")
    assert "loader.storage: cold is not checked" in "".join(capsys.readouterr())


def test_other_kinds_touch_nothing(files):
    missing = files[0].with_name("missing.jpg")
    settle([missing], 50.0)
    settle([missing], UNSET)
    with pytest.raises(FileNotFoundError):
        settle([missing], "warm")


@pytest.mark.parametrize("decode", ["cache", "device"])
def test_decoders_that_read_otherwise_are_refused(decode):
    (fault,) = loader_faults(LoaderSettings(decode=decode, storage="cold"))
    assert fault.startswith("loader.storage: cold is for files that the host reads one by one")
    assert not list(loader_faults(LoaderSettings(decode=decode)))
