"""Operators: made with settings, called in `definegraph` with nodes, run on batches of arrays."""

import copy
import inspect

import numpy as np
from habana_frameworks.mediapipe.media_types import (
    dtype,
    ftype,
    imgtype,
    randomCropType,
    readerOutType,
)
from habana_frameworks.mediapipe.operators.reader_nodes.reader_nodes import (
    media_ext_reader_op_impl,
    media_ext_reader_op_tensor_info,
)
from PIL import Image


class Node:
    """One output of an operator in the graph."""

    def __init__(self, operator, inputs, output=0):
        self.operator, self.inputs, self.output = operator, inputs, output


class MediaExtReaderOp:
    """A reader of the user's own."""

    def __init__(self, *, impl, num_outputs, priv_params, seed=None, device=None):
        assert inspect.isclass(impl)
        assert issubclass(impl, media_ext_reader_op_impl)
        assert len(inspect.getfullargspec(impl).args) == 3  # with `self`, as the vendor's counts
        self.impl, self.num_outputs = impl, num_outputs
        self.params = {"priv_params": copy.deepcopy(priv_params), "seed": seed}

    def __call__(self):
        return tuple(Node(self, (), output) for output in range(self.num_outputs))

    def make_reader(self, fw_params):
        """The reader, held against what it says of itself."""
        reader = self.impl(self.params, fw_params)
        assert reader.get_media_output_type() == readerOutType.FILE_LIST
        self.largest = reader.get_largest_file()
        self.info = reader.gen_output_info()
        assert len(self.info) == self.num_outputs
        assert all(isinstance(info, media_ext_reader_op_tensor_info) for info in self.info)
        return reader

    def check(self, read):
        """Raise where a batch is not of the types and shapes that were announced."""
        assert len(read) == self.num_outputs
        for info, values in zip(self.info, read, strict=True):
            shape = tuple(int(n) for n in reversed(info.shape))
            if info.dtype == dtype.NDT:
                assert isinstance(values, list)
                assert (len(values),) == shape
                assert all(isinstance(value, str) for value in values)
            else:
                assert values.dtype == np.dtype(info.dtype)
                assert values.shape == shape


class ImageDecoder:
    """JPEG files to planar RGB bytes (batch, 3, height, width): the largest middle square."""

    def __init__(self, *, device, output_format, random_crop_type, resize, resampling_mode):
        assert device == "hpu"
        assert output_format == imgtype.RGB_P
        assert resampling_mode == ftype.BICUBIC
        assert random_crop_type == randomCropType.CENTER_CROP
        if any(side % 2 for side in resize):
            raise RuntimeError("resize dims must be even")
        self.size = tuple(resize)

    def __call__(self, files):
        return Node(self, (files,))

    def run(self, files):
        return np.stack([self._decode(path) for path in files])

    def _decode(self, path):
        with Image.open(path, formats=["JPEG"]) as image:
            if image.info.get("progressive"):
                raise RuntimeError(f"unsupported JPEG {path}")
            side = min(image.size)
            left, top = ((length - side) // 2 for length in image.size)
            cropped = image.convert("RGB").crop((left, top, left + side, top + side))
            resized = cropped.resize(self.size, Image.Resampling.BICUBIC)
            return np.asarray(resized).transpose(2, 0, 1)


class MediaConst:
    """A constant; its shape has the fastest dimension first."""

    def __init__(self, *, data, shape, dtype):
        self.value = np.asarray(data, dtype=dtype).reshape(shape[::-1])

    def __call__(self):
        return Node(self, ())

    def run(self):
        return self.value


class CropMirrorNorm:
    """(input - mean) * inverse_std of a window; bytes in, float32 out."""

    def __init__(
        self, *, crop_w, crop_h, crop_pos_x=0.0, crop_pos_y=0.0, crop_d=0, mirror=0, dtype
    ):
        assert (crop_d, mirror) == (0, 0)
        self.size, self.position, self.dtype = (crop_h, crop_w), (crop_pos_y, crop_pos_x), dtype

    def __call__(self, images, mean, inverse_std):
        return Node(self, (images, mean, inverse_std))

    def run(self, images, mean, inverse_std):
        assert images.dtype == np.uint8
        for axis, (side, position) in enumerate(zip(self.size, self.position, strict=True), 2):
            start = int(position * (images.shape[axis] - side))
            images = images.take(range(start, start + side), axis=axis)
        return ((images - mean) * inverse_std).astype(self.dtype)
