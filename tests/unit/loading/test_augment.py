"""What is drawn for a sample follows from seed, epoch and row alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from feedrate.loading.pixels import ASPECTS, Augmentation, Box, recolour

ALL = Augmentation(5, 0.4, True, 0.3)


@given(epoch=st.integers(0, 50), row=st.integers(0, 10_000))
def test_the_same_sample_draws_the_same_and_others_do_not(epoch, row):
    first = ALL.draw(epoch, row)
    assert first == ALL.draw(epoch, row)
    assert first.box(300, 400) == ALL.draw(epoch, row).box(300, 400)
    others = (ALL.draw(epoch + 1, row), ALL.draw(epoch, row + 1))
    others += (Augmentation(6, 0.4, True, 0.3).draw(epoch, row),)
    assert all(other.colour != first.colour for other in others)


def test_one_option_leaves_what_another_draws():
    flip = [Augmentation(5, flip=True).draw(0, row).flip for row in range(200)]
    assert flip == [ALL.draw(0, row).flip for row in range(200)]
    assert 60 < sum(flip) < 140
    assert not any(Augmentation(5, jitter=0.3).draw(0, row).flip for row in range(50))


@settings(max_examples=60)
@given(
    height=st.integers(16, 900),
    width=st.integers(16, 900),
    area=st.floats(0.05, 1),
    row=st.integers(0, 1000),
)
def test_a_crop_lies_in_the_picture_and_keeps_its_share(height, width, area, row):
    box = Augmentation(1, min_area=area).draw(0, row).box(height, width)
    assert 0 <= box.top <= height - box.height
    assert 0 <= box.left <= width - box.width
    fallback = box.height == box.width == min(height, width)
    if not fallback:
        assert box.height * box.width > 0.85 * area * height * width - height - width
        slack = 1.2 + 2 / min(box.height, box.width)
        assert ASPECTS[0] / slack < box.width / box.height < ASPECTS[1] * slack


@given(
    full=st.tuples(st.integers(10, 900), st.integers(10, 900)),
    here=st.tuples(st.integers(1, 900), st.integers(1, 900)),
    row=st.integers(0, 100),
)
def test_a_crop_at_another_scale_lies_in_the_picture(full, here, row):
    box = Augmentation(1, min_area=0.1).draw(0, row).box(*full).scaled(full, here)
    assert 0 <= box.top < box.top + box.height <= here[0]
    assert 0 <= box.left < box.left + box.width <= here[1]
    assert Box(1, 2, 3, 4).scaled(full, full) == Box(1, 2, 3, 4)


def test_each_factor_does_its_own():
    pixels = torch.rand(1, 3, 8, 8) * 0.5

    def with_factors(*factors):
        return recolour(pixels, torch.tensor([factors]))

    assert torch.allclose(with_factors(1.2, 1, 1), pixels * 1.2)
    flat = with_factors(1, 0, 1)
    assert flat.std() < 1e-6
    grey = with_factors(1, 1, 0)
    assert torch.allclose(grey[:, 0], grey[:, 2])
    assert with_factors(5, 1, 1).max() == 1.0


def test_samples_of_a_batch_have_their_own_colours():
    pixels = torch.rand(2, 3, 4, 4)
    factors = torch.tensor([[0.8, 1.1, 0.9], [1.2, 0.9, 1.3]])
    both = recolour(pixels, factors)
    for i in range(2):
        assert torch.allclose(both[i : i + 1], recolour(pixels[i : i + 1], factors[i : i + 1]))


@pytest.mark.parametrize("shape", [(1, 3, 1, 1), (3, 3, 7, 2)])
def test_colours_stay_in_range(shape):
    out = recolour(torch.rand(shape), torch.full((shape[0], 3), 1.5))
    assert out.shape == shape
    assert out.min() >= 0
    assert out.max() <= 1
