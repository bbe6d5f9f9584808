"""`decode: device` on NVIDIA, with a stand-in for torchvision's decoder on the CPU.

It shows what goes in and out; streams and nvJPEG itself need a GPU.
"""

import sys
import threading
from types import ModuleType, SimpleNamespace

import pytest
import torch

from feedrate.config.settings import LoaderSettings
from feedrate.data.loading.distance import distance
from feedrate.data.loading.registry import open_path
from feedrate.data.manifest import DataError
from feedrate.devices import cpu

AUGMENTED = {"random_crop": 0.4, "random_flip": True, "colour_jitter": 0.2}


class Cuda(cpu.DeviceAdapter):
    """The CPU under another name."""

    kind = "cuda"


@pytest.fixture
def calls(monkeypatch):
    """A torchvision whose decoder runs on the CPU; what it was called with."""
    import simplejpeg

    made = []

    def decode_jpeg(files, mode, device):
        assert mode == "RGB"
        made.append((len(files), str(device), threading.current_thread().name))
        try:
            decoded = [simplejpeg.decode_jpeg(file.numpy().tobytes(), "RGB") for file in files]
        except ValueError as error:
            raise RuntimeError(f"nvjpeg: {error}") from None
        return [torch.from_numpy(levels).permute(2, 0, 1) for levels in decoded]

    module = ModuleType("torchvision.io")
    module.decode_jpeg, module.ImageReadMode = decode_jpeg, SimpleNamespace(RGB="RGB")
    monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.io", module)
    return made


class Rows(list):
    batch_size = 4


ORDER = Rows([[0, 1, 2, 3], [7, 5, 20, 11], [22, 23]])


def path(**settings):
    return open_path(Cuda(0, 1), LoaderSettings(decode="device", **settings))


@pytest.mark.parametrize("augmentation", [{}, AUGMENTED])
def test_batches_are_those_of_the_reference(calls, make_pairs, augmentation):
    order = Rows([[number + 24 for number in numbers] for numbers in ORDER])
    loaded = list(path(workers=2).batches(make_pairs(decode="device", **augmentation), order))
    reference = make_pairs(decode="reference", **augmentation)
    assert [len(batch["input_ids"]) for batch in loaded] == [4, 4, 2]
    for numbers, batch in zip(order, loaded, strict=True):
        assert batch["return_loss"] is True
        for i, number in enumerate(numbers):
            sample = reference[number]
            assert torch.equal(batch["input_ids"][i], sample["input_ids"])
            assert torch.equal(batch["attention_mask"][i], sample["attention_mask"])
            assert torch.allclose(batch["pixel_values"][i], sample["pixel_values"], atol=1e-4)
    assert {(device, thread) for _, device, thread in calls} == {("cpu", "decode_0")}


def test_whole_batches_are_decoded_a_few_ahead(calls, make_pairs):
    batches = path().batches(make_pairs(decode="device"), Rows([[0, 1, 2, 3]] * 50))
    for _ in range(3):
        next(batches)
    batches.close()
    assert {count for count, *_ in calls} == {4}
    assert 3 <= len(calls) <= 5
    assert not [t for t in threading.enumerate() if t.name.startswith(("decode", "read"))]


def test_the_distance_of_its_pixels_is_told(calls, make_pairs):
    found = distance(make_pairs(decode="device", **AUGMENTED), path())
    assert found.mean_abs_diff < 1e-3


@pytest.mark.parametrize("contents", [b"nothing", None])
def test_a_bad_file_is_named(calls, make_pairs, tmp_path, contents):
    dataset = make_pairs(decode="device")
    dataset.paths[5] = tmp_path / "bad.jpg"
    if contents:
        dataset.paths[5].write_bytes(contents)
    with pytest.raises(DataError, match=r"bad\.jpg: cannot be decoded"):
        list(path().batches(dataset, ORDER))
