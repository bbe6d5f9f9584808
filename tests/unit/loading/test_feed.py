"""Which part of a picture Gaudi's decoder is asked for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feedrate.data.loading.augment import Augmentation, Box
from feedrate.data.loading.feed import MIN_CROP_PX, MIN_CROP_TWO_STAGES_PX, Feed, share

NOISE = 1e-6


@settings(max_examples=200)
@given(
    height=st.integers(16, 900),
    width=st.integers(16, 900),
    side_px=st.sampled_from([32, 64, 224, 294]),
    row=st.integers(0, 1000),
)
def test_parts_are_such_as_the_decoder_takes(height, width, side_px, row):
    box = Augmentation(1, min_area=0.05).draw(0, row).box(height, width)
    shares = share(box, (height, width), side_px)
    left, top, wide, high = (
        part * full for part, full in zip(shares, (width, height) * 2, strict=True)
    )
    assert min(left, top) >= 0
    assert left + wide <= width + NOISE
    assert top + high <= height + NOISE
    assert wide >= min(width, MIN_CROP_PX) - NOISE
    assert high >= min(height, MIN_CROP_PX) - NOISE
    small = min(height, width) < MIN_CROP_TWO_STAGES_PX
    if min(wide, high) < side_px < max(wide, high) and not small:
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
    assert share(Box(100, 100, 40, 100), full, 32) == (0.25, 0.48, 0.25, 0.24)
    assert share(Box(0, 390, 10, 10), full, 32) == (352 / 400, 0, 0.12, 0.24)
    assert share(Box(0, 0, 60, 300), full, 64) == (0, 0, 0.75, 76 / 200)


@pytest.mark.parametrize("augmentation", [{}, {"random_flip": True}, {"random_crop": 0.3}])
def test_parts_are_told_where_crops_are_random(make_pairs, augmentation):
    feed = Feed(make_pairs(**augmentation), 4)
    given = feed.begin([[24, 30, 31, 2], [7]])
    reads = list(feed)
    assert [len(read) for read in reads] == [4 if "random_crop" in augmentation else 3] * 2
    assert list(given) == [[24, 30, 31, 2], [7]]
    assert [path.split("/")[-1] for path in reads[1][0]] == [feed._dataset.paths[7].name] * 4
    assert reads[0][0][0] == str(feed._dataset.paths[0])  # 24 rows: the second epoch's first
    for *_, parts in reads if feed.crops else ():
        assert parts.shape == (4, 4)
        assert parts.dtype == "float32"
