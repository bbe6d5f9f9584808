"""The fast path against Pillow's own processing of the same geometry, and against the reference."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFile

from feedrate.config.settings import LoaderSettings
from feedrate.loading.decoders import Source, host
from feedrate.loading.pixels import (
    Box,
    crop,
    crop_centre,
    decode,
    resize_part,
    resize_to,
    resized_size,
)

EQUAL_WITHIN_ROUNDING = 0.02
ImageFile.MAXBLOCK = 2**22  # Pillow writes a progressive file at once, noise needs room


def read_pixels(path, side, *, scaled):
    return host.read(Source([path], side, LoaderSettings(scaled_decode=scaled), None), 0)


def read_levels(path, *shrink):
    return host.decode_levels(path, path.read_bytes(), *shrink)


def drawing(width, height, mode="RGB", seed=0):
    rng = np.random.default_rng(seed)
    image = Image.fromarray(rng.integers(180, 255, (height, width, 3), dtype=np.uint8))
    pen = ImageDraw.Draw(image)
    for _ in range(10):
        x, y, dx, dy = (int(n) for n in rng.integers(0, max(width, height), 4))
        ink = tuple(int(n) for n in rng.integers(0, 255, 3))
        pen.line((x, y, dx, dy), fill=ink, width=4)
    return image.convert(mode)


def pillow(path, side):
    """What Pillow alone makes of a file, in uint8."""
    with Image.open(path) as image:
        image = image if image.mode == "L" else image.convert("RGB")
        height, width = resized_size(image.height, image.width, side)
        # Rows before columns, as torch does; Pillow alone turns that round for tall pictures.
        for size in ((width, image.height), (width, height)):
            image = image.resize(size, Image.Resampling.BICUBIC)
        small = np.atleast_3d(np.asarray(image))
    return crop_centre(torch.from_numpy(small.copy()).permute(2, 0, 1), side)


def difference(a, b):
    return float((a.double() - b.double()).abs().mean())


@settings(max_examples=40, deadline=None)
@given(
    width=st.integers(16, 700),
    height=st.integers(16, 700),
    side=st.integers(8, 120),
    mode=st.sampled_from(["RGB", "L"]),
    subsampling=st.sampled_from([0, 1, 2]),
    progressive=st.booleans(),
)
def test_equal_within_rounding_to_pillow(
    tmp_path_factory, width, height, side, mode, subsampling, progressive
):
    path = tmp_path_factory.mktemp("a") / "a.jpg"
    options = {"subsampling": subsampling} if mode == "RGB" else {}
    drawing(width, height, mode).save(path, quality=90, progressive=progressive, **options)
    pixels = read_pixels(path, side, scaled=False)
    assert pixels.dtype == torch.uint8
    assert pixels.shape == (1 if mode == "L" else 3, side, side)
    # Where one rounds up and the other down, pictures of few pixels show more of it.
    assert difference(pixels, pillow(path, side)) < EQUAL_WITHIN_ROUNDING + 4 / side**2
    assert (pixels.int() - pillow(path, side).int()).abs().max() <= 2


@settings(max_examples=300, deadline=None)
@given(
    given_size=st.tuples(st.integers(5, 260), st.integers(5, 260)),
    size=st.tuples(st.integers(2, 150), st.integers(2, 150)),
    channels=st.sampled_from([1, 3]),
    ends=st.tuples(*[st.floats(0, 1)] * 4),
    planes=st.booleans(),
)
@example((58, 341), (99, 582), 3, (0, 1, 242 / 582, 341 / 582), False)
def test_a_part_is_that_of_the_whole(given_size, size, channels, ends, planes):
    rng = np.random.default_rng(given_size)
    levels = torch.from_numpy(rng.integers(0, 256, (*given_size, channels), dtype=np.uint8))
    levels = levels.permute(2, 0, 1)
    levels = levels.contiguous() if planes else levels
    top, bottom = sorted(round(end * size[0]) for end in ends[:2])
    left, right = sorted(round(end * size[1]) for end in ends[2:])
    top, left = min(top, size[0] - 1), min(left, size[1] - 1)
    part = Box(top, left, max(1, bottom - top), max(1, right - left))
    found = resize_part(levels, size, part)
    wanted = resize_to(levels, list(size))
    wanted = wanted[:, part.top : part.top + part.height, part.left : part.left + part.width]
    assert found.shape == wanted.shape
    assert (found.int() - wanted.int()).abs().max() <= 1


def test_rubbish_behind_the_picture_is_passed_over_as_by_the_reference(tmp_path):
    drawing(64, 48).save(tmp_path / "a.jpg")
    with (tmp_path / "a.jpg").open("ab") as stream:
        stream.write(b"rubbish" * 50)
    assert read_levels(tmp_path / "a.jpg")[0].shape == decode(tmp_path / "a.jpg").shape


@pytest.mark.parametrize(
    ("shorter", "factor"), [(63, 1), (64, 2), (127, 2), (128, 4), (255, 4), (256, 8), (900, 8)]
)
def test_scaled_decoding_halves_as_often_as_the_picture_stays_large_enough(
    tmp_path, shorter, factor
):
    drawing(shorter + 50, shorter).save(tmp_path / "a.jpg")
    levels, size = read_levels(tmp_path / "a.jpg", 32)
    assert size == (shorter, shorter + 50)
    assert levels.shape[1:] == (-(-shorter // factor), -(-(shorter + 50) // factor))


def test_scaled_decoding_is_near_the_reference_and_the_full_one_nearer(tmp_path):
    drawing(400, 300).save(tmp_path / "a.jpg", quality=95)
    wanted = crop(decode(tmp_path / "a.jpg"), 64) * 255
    full = difference(read_pixels(tmp_path / "a.jpg", 64, scaled=False), wanted)
    scaled = difference(read_pixels(tmp_path / "a.jpg", 64, scaled=True), wanted)
    assert full < 0.4  # rounding to levels alone gives 0.25
    assert full < scaled < 6
