"""Which part of a picture Gaudi's decoder is asked for."""

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy import float32

from feedrate.data.manifest import DataError
from feedrate.loading.decoders.gaudi import MIN_CROP_PX, MIN_CROP_TWO_STAGES_PX, Feed, share
from feedrate.loading.pixels import Augmentation, Box

NOISE = 1e-4
"""Px that float32 is off."""


@settings(max_examples=200)
@given(
    height=st.integers(16, 900),
    width=st.integers(16, 900),
    side_px=st.sampled_from([32, 64, 224, 294]),
    row=st.integers(0, 1000),
)
@example(height=94, width=446, side_px=64, row=94)  # its height is that of the result
@example(height=103, width=333, side_px=64, row=333)  # its width is that of the result
def test_parts_are_such_as_the_decoder_takes(height, width, side_px, row):
    box = Augmentation(1, min_area=0.05).draw(0, row).box(height, width)
    shares = share(box, (height, width), side_px)
    left, top, wide, high = (
        part * full for part, full in zip(shares, (width, height) * 2, strict=True)
    )
    assert min(left, top) >= 0
    for start, length in ((shares[0], shares[2]), (shares[1], shares[3])):
        assert float32(start) == start
        assert float32(start) + float32(length) <= 1
    assert wide >= min(width, MIN_CROP_PX) - NOISE
    assert high >= min(height, MIN_CROP_PX) - NOISE
    small = min(height, width) < MIN_CROP_TWO_STAGES_PX
    if min(wide, high) < side_px - NOISE and side_px + NOISE < max(wide, high) and not small:
        assert min(wide, high) >= MIN_CROP_TWO_STAGES_PX - NOISE
    # It grows, if at all, and what was wanted stays in it.
    assert left <= box.left + NOISE
    assert top <= box.top + NOISE
    assert left + wide >= box.left + box.width - NOISE
    assert top + high >= box.top + box.height - NOISE
    if min(box.height, box.width) >= MIN_CROP_TWO_STAGES_PX:
        assert Box(*(round(number) for number in (top, left, high, wide))) == box


def test_a_part_grows_around_its_middle_and_stays_in_the_picture():
    full = (200, 400)
    assert share(Box(100, 100, 40, 100), full, 32) == pytest.approx((0.25, 0.48, 0.25, 0.24))
    assert share(Box(0, 390, 10, 10), full, 32) == pytest.approx((352 / 400, 0, 0.12, 0.24))
    assert share(Box(0, 0, 60, 300), full, 64) == pytest.approx((0, 0, 0.75, 76 / 200))


@pytest.mark.parametrize(
    ("augmentation", "shapes"),
    [({}, []), ({"random_flip": True}, [(4, 4)]), ({"random_crop": 0.3}, [(4, 4), (4, 4)])],
)
def test_changes_and_parts_are_told_where_they_are_random(make_pairs, augmentation, shapes):
    dataset = make_pairs(**augmentation)
    feed = Feed(dataset, 4)
    true = feed.begin([[24, 30, 31, 2], [7]])
    reads = list(feed)
    assert list(true) == [4, 1]
    assert [Path(path) for path in reads[1][0]] == [dataset.paths[7]] * 4
    assert Path(reads[0][0][0]) == dataset.paths[0]  # of 24 rows: the second epoch's first
    for _, ids, mask, *more in reads:
        assert ids.shape == mask.shape == (4, feed.max_tokens)
        assert [values.shape for values in more] == shapes
        assert all(values.dtype == "float32" for values in more)
    if feed.changes:
        draws = [dataset.augmentation.draw(*divmod(number, 24)) for number in (24, 30, 31, 2)]
        assert reads[0][3][:, 0].tolist() == [draw.flip for draw in draws]
    if feed.crops:
        assert len({tuple(part) for part in reads[0][4].tolist()}) == 4


def test_a_file_that_is_no_picture_is_named(make_pairs, tmp_path):
    dataset = make_pairs(random_crop=0.3)
    dataset.paths[5] = tmp_path / "bad.jpg"
    dataset.paths[5].write_bytes(b"nothing")
    feed = Feed(dataset, 4)
    feed.begin([[5, 1, 2, 3]])
    with pytest.raises(DataError, match=r"bad\.jpg: cannot be decoded"):
        next(iter(feed))
