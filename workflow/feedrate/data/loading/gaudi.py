"""Decoding on Gaudi: batches of the media pipeline (`media_pipe.py`) as the Trainer wants them.

Prepared images are baseline JPEG files, greyscale or RGB, whatever was fetched: all that the
pipeline takes.
"""

import operator
import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from feedrate.config.settings import LoaderSettings
from feedrate.data.loading.augment import Augmentation
from feedrate.data.loading.device import DevicePath
from feedrate.data.loading.pairs import PairDataset
from feedrate.data.loading.path import Batch
from feedrate.devices.base import Adapter, UnsupportedError

READY_BATCHES = 3
"""Batches that the pipeline prepares ahead, as in optimum-habana's example."""
FIRST_GENERATION = re.compile(r"(?i)\s*(gaudi\s*1?|hl-?20\d\S*)\s*")
"""The only generation without media decoders."""
ENDLESS = 2**30
"""Batches that an order without an end is said to have."""

Read = tuple[list[str], NDArray[np.uint32], NDArray[np.uint32]]
"""Paths of a batch's images; its token numbers and attention mask, (batch, max_tokens)."""


class MediaError(Exception):
    """The media pipeline did something else than it was asked for."""


def open_gaudi(device: Adapter, loader: LoaderSettings) -> DevicePath:
    """The path through the media pipeline; `loader.workers` (at least one) are its host threads.

    Raises UnsupportedError on first-generation Gaudi, and where the pipeline's package is missing.
    """
    if Augmentation.of(loader, seed=0):
        raise UnsupportedError(
            "loader.decode: device: Gaudi's media pipeline crops the centre alone, without flips "
            "and colours; use host or cache for random_crop, random_flip and colour_jitter"
        )
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
    threads = max(1, loader.workers)

    def make_decoder(dataset: PairDataset, batch_size: int) -> MediaDecoder:
        return MediaDecoder(device, dataset, batch_size, threads)

    return DevicePath(make_decoder, ready_batches=READY_BATCHES, timeout_s=loader.timeout_s)


class Feed:
    """What the pipeline reads: paths and tokens of the epoch's batches, each of the full size."""

    def __init__(self, dataset: PairDataset, batch_size: int) -> None:
        self.batch_size = batch_size
        self.max_tokens = dataset.input_ids.shape[1]
        self._paths = [str(path) for path in dataset.paths]
        self._input_ids = dataset.input_ids.numpy().astype(np.uint32)
        self._attention_mask = dataset.attention_mask.numpy().astype(np.uint32)
        self.begin([])

    def begin(self, order: Iterable[list[int]]) -> deque[int]:
        """Read `order` from now on. In the answer appears each batch's true size once it is read,
        which may be in another thread, and ahead of its use."""
        self._order, self._sizes = order, deque[int]()
        return self._sizes

    def __len__(self) -> int:
        """Batches of the epoch."""
        return operator.length_hint(self._order, ENDLESS)

    def __iter__(self) -> Iterator[Read]:
        """The epoch's batches; a smaller one is filled up with its last row."""
        return self._read(self._order, self._sizes)

    def paths(self) -> set[str]:
        """All images of the dataset."""
        return set(self._paths)

    def _read(self, order: Iterable[list[int]], sizes: deque[int]) -> Iterator[Read]:
        for rows in order:
            filled = rows + rows[-1:] * (self.batch_size - len(rows))
            sizes.append(len(rows))
            yield (
                [self._paths[row] for row in filled],
                self._input_ids[filled],
                self._attention_mask[filled],
            )


class MediaDecoder:
    """One media pipeline, kept over the epochs."""

    def __init__(
        self, device: Adapter, dataset: PairDataset, batch_size: int, threads: int
    ) -> None:
        """Raise UnsupportedError for a size of images that the decoder cannot give."""
        if dataset.image_px % 2:
            raise UnsupportedError(
                "loader.decode: device: Gaudi decodes to even sizes, and the model takes "
                f"{dataset.image_px} px; use host"
            )
        self._device = device
        self._dataset = dataset
        self._threads = threads
        self._feed = Feed(dataset, batch_size)
        self._pipeline: Any = None
        self._count = 0

    def batches(self, order: Iterable[list[int]]) -> Iterator[Batch]:
        """One epoch of batches on the device.

        Raises UnsupportedError where the pipeline does not start, and MediaError where it ends
        before it has given all that it read.
        """
        sizes = self._feed.begin(order)
        # A pipeline may have asked for the length once only: another one needs a new pipeline.
        if self._pipeline is None or len(self._feed) != self._count:
            self._pipeline = None  # first give up the old one
            self._pipeline, self._count = self._start(), len(self._feed)
        for pixels, input_ids, attention_mask in self._pipeline:
            yield self._own(sizes.popleft(), pixels, input_ids, attention_mask)
        if sizes:
            raise MediaError(f"the media pipeline ended with {len(sizes)} batches outstanding")

    def _start(self) -> Any:
        data = self._dataset
        try:
            from feedrate.data.loading.media_pipe import start_pipeline

            return start_pipeline(
                self._feed, READY_BATCHES, self._threads, data.image_px, data.mean, data.std
            )
        except Exception as error:
            raise UnsupportedError(
                "loader.decode: device: the Gaudi media pipeline did not start "
                f"({type(error).__name__}: {error}); use host"
            ) from error

    def _own(
        self,
        rows: int,
        pixels: torch.Tensor,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
    ) -> Batch:
        """A batch in memory of its own, in the types of the host's batches.

        The pipeline may use its buffers again, and the Trainer asks for the next batch before it
        uses this one: so the copies (50 MB at batch 48 and 294 px) are handed to the device now.
        """
        batch = {
            "pixel_values": pixels[:rows].clone(),
            "input_ids": input_ids[:rows].to(torch.int64, copy=True),
            "attention_mask": attention_mask[:rows].to(torch.int64, copy=True),
            "return_loss": True,
        }
        self._device.end_of_step()
        return batch
