"""Decoding on Gaudi: the media pipeline reads files, and its batches become the Trainer's.

Prepared images are baseline JPEG files, greyscale or RGB, as it requires. `_gaudi_pipe.py` imports
the vendor's software when a run decodes.
"""

import operator
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from feedrate.config.settings import LoaderSettings
from feedrate.devices.base import Adapter, UnsupportedError
from feedrate.devices.kinds._habana import FIRST_GENERATION
from feedrate.loading.dataset import PairDataset
from feedrate.loading.path import DevicePath
from feedrate.loading.pixels import Batch, Box, Draw, Finish, Statistics, decoding

LEVEL = "device"
KINDS = ("hpu",)
ORDER = 1
# The pipeline calls our reader in the thread that asks for a batch, and has its own prefetching.
IGNORES = ("workers", "prefetch_factor", "persistent_workers")

READY_BATCHES = 3
"""Batches that the pipeline prepares ahead, as in optimum-habana's example."""
UNCHANGED: tuple[Statistics, Statistics] = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
"""Mean and standard deviation that leave pixels in 0 to 1."""
ENDLESS = 2**30
"""Length of an order without an end."""
MIN_CROP_PX, MIN_CROP_TWO_STAGES_PX = 48, 76
"""Smallest sides of a crop that the decoder accepts, as in the vendor's ResNet pipeline; the second
if one side shrinks and the other grows, which takes two stages."""

Floats = NDArray[np.float32]
Read = tuple[list[str], NDArray[np.uint32], NDArray[np.uint32], *tuple[Floats, ...]]
"""Paths of a batch's images; token numbers and attention mask, (batch, max_tokens); with an
augmentation, flip (0 or 1) and factors of brightness, contrast and saturation, (batch, 4); with
random crops, left, top, width and height of each as shares of the picture's, (batch, 4)."""


class MediaError(Exception):
    """The media pipeline gave too many batches, or too few."""


def open_path(device: Adapter, loader: LoaderSettings) -> DevicePath:
    """The path through the media pipeline. Raises UnsupportedError where there is none."""
    model = device.device_model()
    if FIRST_GENERATION.fullmatch(model):
        raise UnsupportedError(
            f"loader.decode: device: {model}, the first generation, has no media decoders; use host"
        )
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
            raise UnsupportedError(
                "loader.decode: device: Gaudi decodes to even sizes, and the model takes "
                f"{dataset.image_px} px; use host"
            )
        self._device, self._dataset = device, dataset
        self._feed = Feed(dataset, batch_size)
        self._finish = Finish(dataset.mean, dataset.std)  # its own, with tensors on the device
        self._pipeline: Any = None
        self._count = 0

    def __call__(self, order: Iterable[list[int]]) -> Iterator[Batch]:
        """One epoch of batches on the device. Raises UnsupportedError if the pipeline does not
        start, MediaError if it ends too early or too late."""
        true_sizes = self._feed.begin(order)
        # A pipeline may ask for the length only once, so another length needs a new pipeline.
        if self._pipeline is None or len(self._feed) != self._count:
            self._pipeline = None  # release the old one first
            self._pipeline, self._count = self._start(), len(self._feed)
        for given in self._pipeline:
            if not true_sizes:
                raise MediaError("the media pipeline gave a batch that it was not asked for")
            yield self._own(true_sizes.popleft(), given)
        if true_sizes:
            raise MediaError(f"the media pipeline ended with {len(true_sizes)} batches outstanding")

    def _start(self) -> Any:
        """A running pipeline; each `iter` of it is an epoch of the tensors of its `definegraph`."""
        data = self._dataset
        # Colours change before pixels are normalised, so with them the pipeline must not normalise.
        statistics = UNCHANGED if data.augmentation else (data.mean, data.std)
        try:
            from habana_frameworks.mediapipe.plugins import iterator_pytorch

            from feedrate.loading.decoders._gaudi_pipe import ImageTextPipe

            pipe = ImageTextPipe(self._feed, *statistics, image_px=data.image_px)
            return iterator_pytorch.HPUGenericPytorchIterator(mediapipe=pipe)
        except Exception as error:
            raise UnsupportedError(
                "loader.decode: device: the Gaudi media pipeline did not start "
                f"({type(error).__name__}: {error}); use host"
            ) from error

    def _own(self, rows: int, given: Sequence[torch.Tensor]) -> Batch:
        """A batch in the types of the host's batches, from the outputs of the pipeline's graph.

        It needs no copy: the bridge allocates new tensors for every batch and gives them away
        (`PytMediaProxy` in HabanaAI/gaudi-pytorch-bridge). What is computed here is submitted now:
        in the training step it would change the graph of an epoch's last step, because the Trainer
        requests a batch ahead, and compiling that takes minutes.
        """
        own, input_ids, attention_mask, *changes = (one[:rows] for one in given)
        if changes:
            flipped = changes[0][:, 0].view(-1, 1, 1, 1) > 0
            colour = changes[0][:, 1:] if self._dataset.augmentation.jitter else None
            own = self._finish.pixels(torch.where(flipped, own.flip(-1), own), colour)
        batch = {
            "pixel_values": own,
            "input_ids": input_ids.to(torch.int64),
            "attention_mask": attention_mask.to(torch.int64),
            "return_loss": True,
        }
        self._device.end_of_step()
        return batch


class Feed:
    """The epoch's batches for the pipeline, each of the full size."""

    def __init__(self, dataset: PairDataset, batch_size: int) -> None:
        self.batch_size = batch_size
        self.max_tokens = dataset.input_ids.shape[1]
        self.changes = bool(dataset.augmentation)
        """Whether a batch has flips and colours."""
        self.crops = bool(dataset.augmentation.min_area)
        """Whether it has the crop of each picture; otherwise the centre is cropped."""
        self.paths = {str(path) for path in dataset.paths}
        self._dataset = dataset
        self._sizes: dict[int, tuple[int, int]] = {}
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
        """The batches of the order that `begin` had last when the first one is read; a smaller one
        is filled with its last sample."""
        data, true_sizes = self._dataset, self._true_sizes
        for numbers in self._order:
            filled = numbers + numbers[-1:] * (self.batch_size - len(numbers))
            rows, draws = data.rows(filled), list(map(data.draw, filled))
            drawn: list[Any] = [[(d.flip, *d.colour) for d in draws]] if self.changes else []
            drawn += [list(map(self._part, rows, draws))] if self.crops else []
            more = [np.array(values, np.float32) for values in drawn]
            true_sizes.append(len(numbers))
            paths = [str(data.paths[row]) for row in rows]
            yield paths, self._input_ids[rows], self._attention_mask[rows], *more

    def _part(self, row: int, draw: Draw) -> tuple[float, float, float, float]:
        """The crop of a row's picture, whose size is read from its file once. Raises DataError."""
        if row not in self._sizes:
            path = self._dataset.paths[row]
            with decoding(path), Image.open(path) as image:
                self._sizes[row] = image.height, image.width
        box = draw.box(*self._sizes[row])
        assert box is not None
        return share(box, self._sizes[row], self._dataset.image_px)


def share(box: Box, full: tuple[int, int], side_px: int) -> tuple[float, float, float, float]:
    """Left, top, width and height of a box as shares of its picture (height, width) `full`; one too
    small for the decoder to resize to `side_px` grows around its middle."""
    high, wide = (max(side, MIN_CROP_PX) for side in (box.height, box.width))
    if min(high, wide) < side_px < max(high, wide):
        high, wide = (max(side, MIN_CROP_TWO_STAGES_PX) for side in (high, wide))
    top, height = _grown(box.top, box.height, high, full[0])
    left, width = _grown(box.left, box.width, wide, full[1])
    return left, top, width, height


def _grown(start: int, length: int, wanted: int, full: int) -> tuple[float, float]:
    """Start and length of an interval made `wanted` long, as shares of `full` within it."""
    grown = min(wanted, full)
    start = max(0, min(start - (grown - length) // 2, full - grown))
    first, long = np.float32(start / full), np.float32(grown / full)
    while first + long > 1:
        long = np.nextafter(long, np.float32(0))
    return float(first), float(long)
