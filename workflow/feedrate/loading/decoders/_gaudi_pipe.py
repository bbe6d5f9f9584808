"""The media pipeline on Gaudi: files in, batches of normalised pixels and tokens out.

`habana_frameworks.mediapipe` is of the package habana-media-loader. Names, arguments and shapes
(fastest dimension first) follow its documentation and optimum-habana's examples.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from habana_frameworks.mediapipe import fn
from habana_frameworks.mediapipe.media_types import (
    dtype,
    ftype,
    imgtype,
    randomCropType,
    readerOutType,
)
from habana_frameworks.mediapipe.mediapipe import MediaPipe
from habana_frameworks.mediapipe.operators.reader_nodes.reader_nodes import (
    media_ext_reader_op_impl,
    media_ext_reader_op_tensor_info,
)

from feedrate.loading.decoders.gaudi import READY_BATCHES, Feed, Read
from feedrate.loading.pixels import LEVELS

MODE = "legacy"  # a reader in Python with operators on the device, as in optimum-habana's examples

_numbers = itertools.count()


class Reader(media_ext_reader_op_impl):  # type: ignore[misc, unused-ignore]
    """Gives a feed's batches to the pipeline, which makes this object."""

    feed: Feed  # set on a subclass for each pipeline: a reader may get a copy of its parameters

    def __init__(self, params: Any, fw_params: Any = None) -> None:
        """The feed has all parameters."""

    def __iter__(self) -> "Reader":
        self._batches: Iterator[Read] = iter(self.feed)
        return self

    def __next__(self) -> Read:
        return next(self._batches)

    def __len__(self) -> int:
        return len(self.feed)

    def gen_output_info(self) -> list[Any]:
        """Types and shapes of the outputs of `__next__`; see `Read`."""
        files = np.array([self.feed.batch_size], dtype=np.uint32)
        max_tokens = self.feed.dataset.input_ids.shape[1]
        tokens = np.array([max_tokens, self.feed.batch_size], dtype=np.uint32)
        outputs = [(dtype.NDT, files), (dtype.UINT32, tokens), (dtype.UINT32, tokens)]
        return [media_ext_reader_op_tensor_info(kind, shape, "") for kind, shape in outputs]

    def get_media_output_type(self) -> Any:
        """Files, not their contents."""
        return readerOutType.FILE_LIST

    def get_largest_file(self) -> str:
        """The file that determines the size of the pipeline's buffers."""
        return str(max(set(self.feed.dataset.paths), key=lambda path: path.stat().st_size))


class ImageTextPipe(MediaPipe):  # type: ignore[misc, unused-ignore]
    """Reads, decodes, crops, resizes and normalises READY_BATCHES ahead; tokens pass through."""

    def __init__(self, feed: Feed) -> None:
        super().__init__(
            device=MODE,
            prefetch_depth=READY_BATCHES,
            batch_size=feed.batch_size,
            pipe_name=f"{type(self).__name__}:{next(_numbers)}",
        )
        reader = type("FeedReader", (Reader,), {"feed": feed})
        self._read = fn.MediaExtReaderOp(impl=reader, num_outputs=3, priv_params={})
        image_px = feed.dataset.image_px
        # The largest square in the middle is resized to the model's size. The host resizes before
        # it crops the centre, which gives the same picture.
        self._decode = fn.ImageDecoder(
            device="hpu",
            output_format=imgtype.RGB_P,
            random_crop_type=randomCropType.CENTER_CROP,
            resize=[image_px, image_px],
            resampling_mode=ftype.BICUBIC,
        )
        self._mean = _constant(np.array(feed.dataset.mean, dtype=np.float32) * LEVELS)
        self._inverse_std = _constant(1 / (np.array(feed.dataset.std, dtype=np.float32) * LEVELS))
        sides = {"crop_w": image_px, "crop_h": image_px, "crop_d": 0}
        centre = {"crop_pos_x": 0.5, "crop_pos_y": 0.5}
        self._normalise = fn.CropMirrorNorm(**sides, **centre, dtype=dtype.FLOAT32)

    def definegraph(self) -> tuple[Any, ...]:
        """Pixels (batch, 3, image_px, image_px) float32; tokens and mask (batch, max_tokens)."""
        files, *tokens = self._read()
        pixels = self._normalise(self._decode(files), self._mean(), self._inverse_std())
        return pixels, *tokens


def _constant(values: np.ndarray) -> Any:
    return fn.MediaConst(data=values, shape=[1, 1, 3], dtype=dtype.FLOAT32)
