"""Decoding on Gaudi: the media pipeline reads files, and its batches become the Trainer's.

It requires baseline JPEG files, grey or RGB. `_gaudi_pipe.py` imports the vendor's software late.
"""

import operator
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from feedrate.config.settings import LoaderSettings
from feedrate.devices.base import Adapter, UnsupportedError
from feedrate.devices.kinds._habana import FIRST_GENERATION
from feedrate.loading.dataset import PairDataset
from feedrate.loading.path import DevicePath
from feedrate.loading.pixels import Batch

LEVEL = "device"
KINDS = ("hpu",)
# The pipeline calls our reader in the thread that requests a batch, and has its own prefetching.
IGNORES = ("workers", "prefetch_factor", "persistent_workers")

READY_BATCHES = 3  # batches that the pipeline prepares ahead, as in optimum-habana's example
ENDLESS = 2**30  # length of an order without an end
Read = tuple[list[str], NDArray[np.uint32], NDArray[np.uint32]]
"""Paths of a batch's images; token numbers and attention mask, (batch, max_tokens)."""


class MediaError(Exception):
    """The media pipeline gave too many batches, or too few."""


def open_path(device: Adapter, loader: LoaderSettings) -> DevicePath:
    """The path through the media pipeline. Raises UnsupportedError where there is none."""
    model = device.device_model()
    if FIRST_GENERATION.fullmatch(model):
        reason = f"{model}, the first generation, has no media decoders; use host"
        raise UnsupportedError(f"loader.decode: device: {reason}")
    try:
        import habana_frameworks.mediapipe.mediapipe  # noqa: F401
    except (ImportError, OSError) as error:
        raise UnsupportedError(
            "loader.decode: device: the package habana-media-loader of the Gaudi software cannot "
            f"be imported ({error}); install it where the training processes run, or use host"
        ) from error
    make = partial(MediaDecoder, device)
    return DevicePath(make, ready_batches=READY_BATCHES, timeout_s=loader.timeout_s)


class MediaDecoder:
    """One media pipeline, kept over the epochs."""

    def __init__(self, device: Adapter, dataset: PairDataset, batch_size: int) -> None:
        """Raise UnsupportedError for an image size that the decoder cannot produce."""
        if dataset.image_px % 2:
            reason = f"Gaudi decodes to even sizes, and the model takes {dataset.image_px} px"
            raise UnsupportedError(f"loader.decode: device: {reason}; use host")
        self._device = device
        self._feed = Feed(dataset, batch_size)
        self._pipeline: Any = None
        self._count = 0

    def __call__(self, order: Iterable[list[int]]) -> Iterator[Batch]:
        """One epoch of batches on the device. Raises UnsupportedError and MediaError."""
        true_sizes = self._feed.begin(order)
        # A pipeline may ask for the length only once, so another length needs a new pipeline.
        if self._pipeline is None or len(self._feed) != self._count:
            self._pipeline = None  # release the old one first
            self._pipeline, self._count = self._start(), len(self._feed)
        for outputs in self._pipeline:
            if not true_sizes:
                raise MediaError("the media pipeline gave a batch that it was not asked for")
            rows = true_sizes.popleft()
            # No copy is needed: the bridge allocates new tensors for every batch and gives them
            # away (`PytMediaProxy` in HabanaAI/gaudi-pytorch-bridge).
            pixels, input_ids, attention_mask = (output[:rows] for output in outputs)
            batch = {
                "pixel_values": pixels,
                "input_ids": input_ids.to(torch.int64),
                "attention_mask": attention_mask.to(torch.int64),
                "return_loss": True,
            }
            # Submits these operations now. In the training step they would change the graph of an
            # epoch's last step, because the Trainer requests a batch ahead, and compiling that
            # takes minutes.
            self._device.end_of_step()
            yield batch
        if true_sizes:
            raise MediaError(f"the media pipeline ended with {len(true_sizes)} batches outstanding")

    def _start(self) -> Any:
        """A running pipeline; each `iter` of it is an epoch of the tensors of its `definegraph`."""
        try:
            from habana_frameworks.mediapipe.plugins import iterator_pytorch

            from feedrate.loading.decoders._gaudi_pipe import ImageTextPipe

            pipe = ImageTextPipe(self._feed)
            return iterator_pytorch.HPUGenericPytorchIterator(mediapipe=pipe)
        except Exception as error:
            reason = f"the Gaudi media pipeline did not start ({type(error).__name__}: {error})"
            raise UnsupportedError(f"loader.decode: device: {reason}; use host") from error


class Feed:
    """The epoch's batches for the pipeline, each of the full size."""

    def __init__(self, dataset: PairDataset, batch_size: int) -> None:
        self.batch_size, self.dataset = batch_size, dataset
        self._input_ids = dataset.input_ids.numpy().astype(np.uint32)
        self._attention_mask = dataset.attention_mask.numpy().astype(np.uint32)
        self.begin([])

    def begin(self, order: Iterable[list[int]]) -> deque[int]:
        """Read `order` from now on; returns the true sizes of the batches that were read."""
        self._order, self._true_sizes = order, deque[int]()
        return self._true_sizes

    def __len__(self) -> int:
        return operator.length_hint(self._order, ENDLESS)

    def __iter__(self) -> Iterator[Read]:
        """The batches of the present order; a smaller one is filled with its last sample."""
        true_sizes = self._true_sizes
        for rows in self._order:
            true_sizes.append(len(rows))
            full = rows + rows[-1:] * (self.batch_size - len(rows))
            paths = [str(self.dataset.paths[row]) for row in full]
            yield paths, self._input_ids[full], self._attention_mask[full]
