"""Decoding on NVIDIA GPUs: encoded bytes go to the GPU, which decodes, resizes and normalises.

torchvision gives a whole batch to nvJPEG, which uses the GPU's JPEG engines (A100 and later). All
this runs on its own stream, at the same time as the training step.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from functools import partial

import numpy as np
import torch

from feedrate.config.settings import LoaderSettings
from feedrate.devices.base import Adapter, UnsupportedError
from feedrate.loading.dataset import PairDataset
from feedrate.loading.path import DevicePath, in_order
from feedrate.loading.pixels import LEVELS, Batch, Finish, crop, decoding, undecodable

LEVEL = "device"
KINDS = ("cuda",)

READY_BATCHES = 2  # batches that are decoded ahead: one is decoded while one waits

NO_MEMORY = re.compile(r"Failed to [^:\n]*: 5\b")
"""How torchvision reports NVJPEG_STATUS_ALLOCATOR_FAILURE: nvJPEG does not use torch's memory."""

DecodeAll = Callable[[list[torch.Tensor]], list[torch.Tensor]]
"""JPEG files (uint8, on the host) to uint8 (3, h, w) on the device; RuntimeError for a bad one."""


def open_path(device: Adapter, loader: LoaderSettings) -> DevicePath:
    """The path through nvJPEG; `loader.workers` threads, at least one, read the files. Raises
    UnsupportedError if torchvision is missing or cannot use the GPU."""
    try:
        from torchvision.io import ImageReadMode, decode_jpeg
    except (ImportError, OSError, RuntimeError) as error:
        raise UnsupportedError(
            f"loader.decode: device: torchvision cannot be imported ({error}); "
            "install the version that belongs to this torch, or use host or cache"
        ) from error

    decode_all = partial(decode_jpeg, mode=ImageReadMode.RGB, device=device.device)
    make = partial(GpuDecoder, device.device, decode_all, max(1, loader.workers))
    return DevicePath(make, ready_batches=READY_BATCHES, timeout_s=loader.timeout_s)


class SideStream:
    """A stream next to the training step's; on a CPU, which has no streams, it has no effect."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """A context whose work goes to this stream, and has ended when it is left."""
        with torch.cuda.stream(self._stream) if self._stream else nullcontext():
            yield
        if self._stream:
            self._stream.synchronize()

    def take_thread(self) -> None:
        """Use this stream's GPU in a new thread: else it opens a context of 0.5 GB on the first."""
        if self._stream:
            torch.cuda.set_device(self._stream.device)

    def hand_over(self, tensors: Iterable[torch.Tensor]) -> None:
        """Give finished `tensors` to the caller's stream."""
        for tensor in tensors if self._stream else ():
            # Its memory is not reused too early.
            tensor.record_stream(torch.cuda.current_stream(tensor.device))


class GpuDecoder:
    """Threads read files, and one more thread decodes batches, `READY_BATCHES` ahead."""

    def __init__(
        self, device: torch.device, decode: DecodeAll, threads: int, pairs: PairDataset, _size: int
    ) -> None:
        self._device, self._dataset = device, pairs
        self._decode_all, self._threads = decode, threads
        self._finish = Finish(pairs.mean, pairs.std)  # its own, with tensors on the device
        self._stream = SideStream(device)

    def __call__(self, order: Iterable[list[int]]) -> Iterator[Batch]:
        """One epoch of batches on the device. Raises DataError, which names an unusable file."""
        readers = ThreadPoolExecutor(self._threads, "read")
        decoder = ThreadPoolExecutor(1, "decode", self._stream.take_thread)
        requests = ((rows, readers.map(self._read_file, rows)) for rows in order)
        batches = in_order(decoder, self._make, requests, READY_BATCHES - 1)
        with readers, decoder, closing(batches):
            for batch in batches:
                self._stream.hand_over(filter(torch.is_tensor, batch.values()))
                yield batch

    def _read_file(self, row: int) -> torch.Tensor:
        path = self._dataset.paths[row]
        with decoding(path):
            return torch.from_numpy(np.fromfile(path, dtype=np.uint8))

    def _make(self, request: tuple[list[int], Iterable[torch.Tensor]]) -> Batch:
        """The batch of these rows and files, finished on the device before the next one begins:
        nvJPEG does not wait for our stream, would overwrite memory that it still reads
        (pytorch/vision, pull request 9606), and reads the files after the call."""
        data, (rows, files) = self._dataset, request
        encoded = list(files)
        with self._stream(), torch.no_grad():
            pictures = self._decode(rows, encoded)
            crops = [crop(p.to(torch.float32).div_(LEVELS), data.image_px) for p in pictures]
            return {
                "pixel_values": self._finish.pixels(torch.stack(crops)),
                "input_ids": data.input_ids[rows].to(self._device),
                "attention_mask": data.attention_mask[rows].to(self._device),
                "return_loss": True,
            }

    def _decode(self, rows: list[int], encoded: list[torch.Tensor]) -> list[torch.Tensor]:
        """Decode all files at once, or one by one if a file fails, which the error then names."""
        try:
            return self._decode_all(encoded)
        except (torch.OutOfMemoryError, torch.AcceleratorError):
            raise
        except RuntimeError as error:
            if NO_MEMORY.search(str(error)):
                raise torch.OutOfMemoryError(f"nvJPEG is out of memory: {error}") from error
            if "out of memory" in str(error).lower():
                raise
            if len(rows) == 1:
                raise undecodable(self._dataset.paths[rows[0]], error) from error
            for row, file in zip(rows, encoded, strict=True):
                self._decode([row], [file])
            raise
