"""`decode: device` on NVIDIA, with a stand-in for torchvision's decoder on the CPU.

It shows what goes in and out; streams and nvJPEG itself need a GPU.
"""

import sys
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from feedrate.config.settings import LoaderSettings
from feedrate.data.manifest import DataError
from feedrate.jobs.worker import classify
from feedrate.loading.decoders import nvjpeg
from feedrate.loading.decoders.nvjpeg import SideStream
from feedrate.loading.path import open_path

GPU = torch.device("cuda", 3)


class Rows(list):
    batch_size = 4


ORDER = Rows([[0, 1, 2, 3], [7, 5, 20, 11], [22, 23]])


@pytest.fixture
def path(calls, cuda):
    """Opens the path on the stand-in."""
    return lambda **settings: open_path(cuda, LoaderSettings(decode="device", **settings))


def test_batches_are_those_of_the_reference(calls, path, make_pairs):
    loaded = list(path(workers=2).batches(make_pairs(decode="device"), ORDER))
    reference = make_pairs(decode="reference")
    assert [len(batch["input_ids"]) for batch in loaded] == [4, 4, 2]
    for numbers, batch in zip(ORDER, loaded, strict=True):
        assert batch["return_loss"] is True
        for i, number in enumerate(numbers):
            sample = reference[number]
            assert torch.equal(batch["input_ids"][i], sample["input_ids"])
            assert torch.equal(batch["attention_mask"][i], sample["attention_mask"])
            assert torch.allclose(batch["pixel_values"][i], sample["pixel_values"], atol=1e-4)
    assert {(device, thread) for _, device, thread in calls} == {("cpu", "decode_0")}


def test_whole_batches_are_decoded_a_few_ahead(calls, path, make_pairs):
    batches = path().batches(make_pairs(decode="device"), Rows([[0, 1, 2, 3]] * 50))
    for _ in range(3):
        next(batches)
    batches.close()
    assert {count for count, *_ in calls} == {4}
    assert 3 <= len(calls) <= 5
    assert not [t for t in threading.enumerate() if t.name.startswith(("decode", "read"))]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 MiB"),
        torch.AcceleratorError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("nvjpeg: CUDA error: out of memory"),
    ],
    ids=["torch", "cuda", "nvjpeg"],
)
def test_the_devices_own_errors_are_blamed_on_no_file(decode_with, cuda, make_pairs, error):
    asked = []

    def fail(files, mode, device):
        asked.append(len(files))
        raise error

    decode_with(fail)
    loaded = open_path(cuda, LoaderSettings(decode="device")).batches(
        make_pairs(decode="device"), ORDER
    )
    with pytest.raises(type(error)) as raised:
        next(loaded)
    assert raised.value is error
    assert set(asked) <= {4, 2}, "files were tried one by one on a device that fails"
    assert not classify(error).infrastructure
    assert classify(error).out_of_memory == ("out of memory" in str(error))


@pytest.mark.parametrize("status", [5, 6])
def test_a_lack_of_memory_for_nvjpeg_is_blamed_on_no_file(decode_with, cuda, make_pairs, status):
    """NVJPEG_STATUS_ALLOCATOR_FAILURE, in the words of torchvision's decode_jpegs_cuda.cpp; 6 is an
    execution that failed."""

    def fail(files, mode, device):
        raise RuntimeError(f"Error while decoding JPEG images: Failed to decode batch: {status}\n")

    decode_with(fail)
    path = open_path(cuda, LoaderSettings(decode="device"))
    with pytest.raises((DataError, torch.OutOfMemoryError)) as raised:
        next(path.batches(make_pairs(decode="device"), ORDER))
    assert classify(raised.value).out_of_memory == (status == 5)


class Streams:
    """Records the calls of CUDA's streams and of the decoder, by thread, in order."""

    def __init__(self, monkeypatch):
        self.seen = []
        side = SimpleNamespace(device=GPU, synchronize=lambda: self.note("finished"))
        monkeypatch.setattr(torch.cuda, "Stream", lambda device: side)
        monkeypatch.setattr(torch.cuda, "stream", lambda _stream: nullcontext())
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "current")
        monkeypatch.setattr(torch.cuda, "set_device", lambda device: self.note(f"on {device}"))
        monkeypatch.setattr(torch.Tensor, "record_stream", lambda *_: self.note("handed over"))
        # The stream is a GPU's, though all tensors are on the CPU.
        monkeypatch.setattr(nvjpeg, "SideStream", lambda _device: SideStream(GPU))

    def note(self, what):
        thread = threading.current_thread().name
        self.seen.append((thread if thread == "decode_0" else "main", what))

    def of(self, thread):
        return [what for where, what in self.seen if where == thread]


def test_each_batch_is_finished_before_the_next_is_decoded(
    calls, path, make_pairs, monkeypatch, decode_with
):
    """nvJPEG's stream does not wait for ours, so no two batches may overlap."""
    streams = Streams(monkeypatch)
    decode = sys.modules["torchvision.io"].decode_jpeg

    def noted(*args, **kwargs):
        streams.note("decoded")
        return decode(*args, **kwargs)

    decode_with(noted)
    for _ in path(workers=2).batches(make_pairs(decode="device"), ORDER):
        streams.note("taken")
    assert streams.of("decode_0") == [f"on {GPU}", *["decoded", "finished"] * len(ORDER)]
    # Pixels, tokens and mask of a batch are handed over when its work is done, and before its use.
    assert streams.of("main") == [*["handed over"] * 3, "taken"] * len(ORDER)
    for batch in range(1, len(ORDER) + 1):
        done = [i for i, (_, what) in enumerate(streams.seen) if what == "finished"][batch - 1]
        used = [i for i, (_, what) in enumerate(streams.seen) if what == "handed over"]
        assert done < used[3 * (batch - 1)]
