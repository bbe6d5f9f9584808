"""What Gaudi's media pipeline reads: files, tokens, and the part of each picture that is wanted."""

import operator
from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from feedrate.data.loading.augment import Box
from feedrate.data.loading.pairs import PairDataset

ENDLESS = 2**30
"""Batches that an order without an end is said to have."""
MIN_CROP_PX = 48
"""Sides of a part that the decoder takes, as in the vendor's own ResNet pipeline; the second where
one side is to shrink and the other to grow, which takes it two stages."""
MIN_CROP_TWO_STAGES_PX = 76

Read = tuple[list[str], NDArray[np.uint32], NDArray[np.uint32], *tuple[NDArray[np.float32], ...]]
"""Paths of a batch's images; its token numbers and attention mask, (batch, max_tokens); with random
crops, the part of each picture (batch, 4): left, top, width, height, as shares of the picture's."""


class Feed:
    """What the pipeline reads: the epoch's batches, each of the full size."""

    def __init__(self, dataset: PairDataset, batch_size: int) -> None:
        self.batch_size = batch_size
        self.max_tokens = dataset.input_ids.shape[1]
        self.crops = bool(dataset.augmentation.min_area)
        """Whether a batch tells the part of each picture; else the centre is taken."""
        self._dataset = dataset
        self._input_ids = dataset.input_ids.numpy().astype(np.uint32)
        self._attention_mask = dataset.attention_mask.numpy().astype(np.uint32)
        self.begin([])

    def begin(self, order: Iterable[list[int]]) -> deque[list[int]]:
        """Read `order` from now on. In the answer appear each batch's own numbers once it is read,
        which may be in another thread, and ahead of its use."""
        self._order, self._given = order, deque[list[int]]()
        return self._given

    def __len__(self) -> int:
        """Batches of the epoch."""
        return operator.length_hint(self._order, ENDLESS)

    def __iter__(self) -> Iterator[Read]:
        """The epoch's batches; a smaller one is filled up with its last sample."""
        return self._read(self._order, self._given)

    def paths(self) -> set[str]:
        """All images of the dataset."""
        return {str(path) for path in self._dataset.paths}

    def _read(self, order: Iterable[list[int]], given: deque[list[int]]) -> Iterator[Read]:
        for numbers in order:
            filled = numbers + numbers[-1:] * (self.batch_size - len(numbers))
            rows = [number % len(self._dataset) for number in filled]
            paths = [str(self._dataset.paths[row]) for row in rows]
            crops = [self._crops(filled, paths)] if self.crops else []
            given.append(numbers)
            yield paths, self._input_ids[rows], self._attention_mask[rows], *crops

    def _crops(self, numbers: list[int], paths: list[str]) -> NDArray[np.float32]:
        """The part of each picture that its sample's draw wants, (batch, 4)."""
        data = self._dataset
        shares = []
        for number, path in zip(numbers, paths, strict=True):
            with Image.open(path) as image:  # its header alone
                width, height = image.size
            box = data.augmentation.draw(*divmod(number, len(data))).box(height, width)
            assert box is not None
            shares.append(share(box, (height, width), data.image_px))
        return np.array(shares, dtype=np.float32)


def share(box: Box, full: tuple[int, int], side_px: int) -> tuple[float, float, float, float]:
    """Left, top, width and height of a box as shares of its picture (height, width) `full`.

    A part that is too small to be resized to `side_px` by the decoder grows around its middle.
    """
    high, wide = (max(side, MIN_CROP_PX) for side in (box.height, box.width))
    if min(high, wide) < side_px < max(high, wide):
        high, wide = (max(side, MIN_CROP_TWO_STAGES_PX) for side in (high, wide))
    top, high = _grown(box.top, box.height, high, full[0])
    left, wide = _grown(box.left, box.width, wide, full[1])
    return left / full[1], top / full[0], wide / full[1], high / full[0]


def _grown(start: int, length: int, wanted: int, full: int) -> tuple[int, int]:
    """Start and length of a stretch made `wanted` long, within 0 to `full`."""
    length, grown = min(wanted, full), min(wanted, full) - length
    return max(0, min(start - grown // 2, full - length)), length
