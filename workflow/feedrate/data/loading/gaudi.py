"""Decoding on Gaudi: batches of the media pipeline (`media_pipe.py`) as the Trainer wants them.

Prepared images are baseline JPEG files, greyscale or RGB, whatever was fetched: all that the
pipeline takes.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from feedrate.config.settings import LoaderSettings
from feedrate.data.loading.device import DevicePath
from feedrate.data.loading.feed import Feed
from feedrate.data.loading.finish import Finish, Statistics
from feedrate.data.loading.pairs import PairDataset
from feedrate.data.loading.path import Batch
from feedrate.devices.base import Adapter, UnsupportedError

READY_BATCHES = 3
"""Batches that the pipeline prepares ahead, as in optimum-habana's example."""
LEFT_AS_THEY_ARE: tuple[Statistics, Statistics] = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
"""Mean and standard deviation that leave pixels in 0 to 1."""
FIRST_GENERATION = re.compile(r"(?i)\s*(gaudi\s*1?|hl-?20\d\S*)\s*")
"""The only generation without media decoders."""


class MediaError(Exception):
    """The media pipeline did something else than it was asked for."""


def open_gaudi(device: Adapter, loader: LoaderSettings) -> DevicePath:
    """The path through the media pipeline; `loader.workers` (at least one) are its host threads.

    Raises UnsupportedError on first-generation Gaudi, and where the pipeline's package is missing.
    """
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
        self._finish = Finish(dataset.mean, dataset.std)  # its own: it keeps tensors on the device
        self._pipeline: Any = None
        self._count = 0

    def batches(self, order: Iterable[list[int]]) -> Iterator[Batch]:
        """One epoch of batches on the device.

        Raises UnsupportedError where the pipeline does not start, and MediaError where it ends
        before it has given all that it read.
        """
        true = self._feed.begin(order)
        # A pipeline may have asked for the length once only: another one needs a new pipeline.
        if self._pipeline is None or len(self._feed) != self._count:
            self._pipeline = None  # first give up the old one
            self._pipeline, self._count = self._start(), len(self._feed)
        for given in self._pipeline:
            if not true:
                raise MediaError("the media pipeline gave a batch that it was not asked for")
            yield self._own(true.popleft(), *given)
        if true:
            raise MediaError(f"the media pipeline ended with {len(true)} batches outstanding")

    def _start(self) -> Any:
        data = self._dataset
        # Colours are changed before pixels are normalised, so then the pipeline must not.
        mean, std = LEFT_AS_THEY_ARE if data.augmentation else (data.mean, data.std)
        try:
            from feedrate.data.loading.media_pipe import start_pipeline

            return start_pipeline(
                self._feed, READY_BATCHES, self._threads, data.image_px, mean, std
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
        changes: torch.Tensor | None = None,
    ) -> Batch:
        """A batch in memory of its own, in the types of the host's batches.

        The pipeline may use its buffers again, and the Trainer asks for the next batch before it
        uses this one: so the copies (50 MB at batch 48 and 294 px) are handed to the device now.
        """
        own = pixels[:rows].clone()
        batch = {
            "pixel_values": own if changes is None else self._changed(own, changes[:rows]),
            "input_ids": input_ids[:rows].to(torch.int64, copy=True),
            "attention_mask": attention_mask[:rows].to(torch.int64, copy=True),
            "return_loss": True,
        }
        self._device.end_of_step()
        return batch

    def _changed(self, pixels: torch.Tensor, changes: torch.Tensor) -> torch.Tensor:
        """Pixels (n, 3, h, w) in 0 to 1 and what `Read` says of them, to normalised ones."""
        flipped = changes[:, 0].view(-1, 1, 1, 1) > 0
        pixels = torch.where(flipped, pixels.flip(-1), pixels)
        colour = changes[:, 1:] if self._dataset.augmentation.jitter else None
        return self._finish.pixels(pixels, colour)
