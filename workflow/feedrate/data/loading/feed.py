"""What Gaudi's media pipeline reads: files, tokens, and how each picture is to be changed."""

import operator
from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from feedrate.data.loading.augment import Box, Draw
from feedrate.data.loading.pairs import PairDataset
from feedrate.data.manifest import DataError

ENDLESS = 2**30
"""Batches that an order without an end is said to have."""
MIN_CROP_PX = 48
"""Sides of a part that the decoder takes, as in the vendor's own ResNet pipeline; the second where
one side is to shrink and the other to grow, which takes it two stages."""
MIN_CROP_TWO_STAGES_PX = 76

Floats = NDArray[np.float32]
Read = tuple[list[str], NDArray[np.uint32], NDArray[np.uint32], *tuple[Floats, ...]]
"""Paths of a batch's images; its token numbers and attention mask, (batch, max_tokens); with an
augmentation, whether each picture is flipped (0 or 1) and its factors of brightness, contrast and
saturation, (batch, 4); with random crops, the part of each, (batch, 4): left, top, width and height
as shares of the picture's."""


class Feed:
    """What the pipeline reads: the epoch's batches, each of the full size."""

    def __init__(self, dataset: PairDataset, batch_size: int) -> None:
        self.batch_size = batch_size
        self.max_tokens = dataset.input_ids.shape[1]
        self.changes = bool(dataset.augmentation)
        """Whether a batch tells flips and colours."""
        self.crops = bool(dataset.augmentation.min_area)
        """Whether it tells the part of each picture; else the centre is taken."""
        self._dataset = dataset
        self._sizes = np.zeros((len(dataset), 2), dtype=np.int32)
        self._input_ids = dataset.input_ids.numpy().astype(np.uint32)
        self._attention_mask = dataset.attention_mask.numpy().astype(np.uint32)
        self.begin([])

    def begin(self, order: Iterable[list[int]]) -> deque[int]:
        """Read `order` from now on. In the answer appears each batch's true size once it is read,
        which may be in another thread, and ahead of its use."""
        self._order, self._true = order, deque[int]()
        return self._true

    def __len__(self) -> int:
        """Batches of the epoch."""
        return operator.length_hint(self._order, ENDLESS)

    def __iter__(self) -> Iterator[Read]:
        """The epoch's batches; a smaller one is filled up with its last sample."""
        return self._read(self._order, self._true)

    def paths(self) -> set[str]:
        """All images of the dataset."""
        return {str(path) for path in self._dataset.paths}

    def _read(self, order: Iterable[list[int]], true: deque[int]) -> Iterator[Read]:
        data = self._dataset
        for numbers in order:
            filled = numbers + numbers[-1:] * (self.batch_size - len(numbers))
            rows = [number % len(data) for number in filled]
            draws = [data.augmentation.draw(*divmod(number, len(data))) for number in filled]
            more = [_floats((d.flip, *d.colour) for d in draws)] if self.changes else []
            more += [_floats(map(self._part, rows, draws))] if self.crops else []
            true.append(len(numbers))
            paths = [str(data.paths[row]) for row in rows]
            yield paths, self._input_ids[rows], self._attention_mask[rows], *more

    def _part(self, row: int, draw: Draw) -> tuple[float, float, float, float]:
        """The part of a row's picture that its draw wants."""
        height, width = self._size(row)
        box = draw.box(height, width)
        assert box is not None
        return share(box, (height, width), self._dataset.image_px)

    def _size(self, row: int) -> tuple[int, int]:
        """Height and width of a row's picture, px, read from its file once.

        Raises DataError naming a file that is no picture.
        """
        if not self._sizes[row].any():
            path = self._dataset.paths[row]
            try:
                with Image.open(path) as image:
                    self._sizes[row] = image.height, image.width
            except (OSError, ValueError, Image.DecompressionBombError) as error:
                raise DataError(
                    f"{path}: cannot be decoded ({error}); prepare the data again"
                ) from error
        height, width = self._sizes[row].tolist()
        return height, width


def _floats(values: Iterable[Iterable[float]]) -> Floats:
    return np.array([tuple(row) for row in values], dtype=np.float32)


def share(box: Box, full: tuple[int, int], side_px: int) -> tuple[float, float, float, float]:
    """Left, top, width and height of a box as shares of its picture (height, width) `full`.

    A part that is too small to be resized to `side_px` by the decoder grows around its middle.
    """
    high, wide = (max(side, MIN_CROP_PX) for side in (box.height, box.width))
    if min(high, wide) < side_px < max(high, wide):
        high, wide = (max(side, MIN_CROP_TWO_STAGES_PX) for side in (high, wide))
    top, height = _shares(*_grown(box.top, box.height, high, full[0]), full[0])
    left, width = _shares(*_grown(box.left, box.width, wide, full[1]), full[1])
    return left, top, width, height


def _grown(start: int, length: int, wanted: int, full: int) -> tuple[int, int]:
    """Start and length of a stretch made `wanted` long, within 0 to `full`."""
    length, grown = min(wanted, full), min(wanted, full) - length
    return max(0, min(start - grown // 2, full - length)), length


def _shares(start: int, length: int, full: int) -> tuple[float, float]:
    """Start and length as shares whose sum in float32 is never beyond the end."""
    first, long = np.float32(start / full), np.float32(length / full)
    while first + long > 1:
        long = np.nextafter(long, np.float32(0))
    return float(first), float(long)
