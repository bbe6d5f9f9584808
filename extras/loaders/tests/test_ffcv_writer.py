"""Writing FFCV's file, on a stand-in for the library that waits for its processes as it does."""

import importlib
import sys
import time
from multiprocessing import Process, Value
from pathlib import Path
from types import ModuleType

import pytest

from feedrate.data.manifest import DataError

PLUGIN = "feedrate_loaders.libraries.ffcv"


class Writer:
    """Writes rows in a process, and waits until it has told them all."""

    def __init__(self, file, fields, num_workers):
        self._file = file

    def from_indexed_dataset(self, rows, numbers):
        done = Value("i", 0)
        module = sys.modules["ffcv.writer"]
        process = module.Process(target=write_rows, args=(self._file, rows, numbers, done))
        process.start()
        while done.value != len(numbers):
            assert process.is_alive(), "the library would wait for ever"
            time.sleep(0.01)


def write_rows(file, rows, numbers, done):
    with Path(file).open("w") as stream:
        for number in numbers:
            stream.write(f"{rows[number]}\n")
            done.value += 1


@pytest.fixture
def plugin(monkeypatch):
    """The plug-in, imported with a stand-in for the library."""
    kinds = {
        "ffcv": ["writer"],
        "ffcv.fields": ["BytesField", "IntField", "NDArrayField", "RGBImageField"],
        "ffcv.fields.rgb_image": ["CenterCropRGBImageDecoder"],
        "ffcv.loader": ["Loader"],
        "ffcv.loader.epoch_iterator": ["EpochIterator"],
        "ffcv.pipeline": [],
        "ffcv.pipeline.operation": ["Operation"],
        "ffcv.writer": [],
        "numba": ["config"],
    }
    for name, parts in kinds.items():
        module = ModuleType(name)
        for part in parts:
            setattr(module, part, type(part, (), {}))
        monkeypatch.setitem(sys.modules, name, module)
    writer = sys.modules["ffcv.writer"]
    writer.Process, writer.DatasetWriter = Process, Writer
    sys.modules["ffcv"].writer = writer
    monkeypatch.delitem(sys.modules, PLUGIN, raising=False)
    yield importlib.import_module(PLUGIN)
    sys.modules.pop(PLUGIN, None)


class Rows:
    """Rows of which one cannot be read."""

    def __getitem__(self, number):
        if number == 2:
            raise DataError("2.jpg: cannot be decoded")
        return number


def test_a_row_that_cannot_be_read_ends_the_writing(plugin, tmp_path):
    with pytest.raises(DataError, match=r"^2\.jpg"):
        plugin._write({}, Rows(), 4, tmp_path)


def test_all_rows_are_written(plugin, tmp_path):
    plugin._write({}, Rows(), 2, tmp_path)
    assert (tmp_path / plugin.FILE).read_text() == "0\n1\n"
    assert sys.modules["ffcv.writer"].Process is Process
