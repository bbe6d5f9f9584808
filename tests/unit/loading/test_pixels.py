"""The host path from a file to pixels."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from feedrate.loading.pixels import Finish, crop_centre, decode, resize_to, resized_size


def gradient(width: int, height: int) -> Image.Image:
    rows = np.linspace(0, 255, height)[:, None] * np.ones(width)
    columns = np.ones(height)[:, None] * np.linspace(0, 255, width)
    return Image.fromarray(np.stack([rows, columns, rows / 2], axis=2).astype(np.uint8))


def test_colour_is_read_as_float_channels_first(tmp_path):
    gradient(40, 30).save(tmp_path / "a.png")
    pixels = decode(tmp_path / "a.png")
    assert pixels.shape == (3, 30, 40)
    assert pixels.dtype == torch.float32
    assert pixels.is_contiguous()
    expected = np.asarray(gradient(40, 30), dtype=np.float32) / 255
    assert np.allclose(pixels.permute(1, 2, 0).numpy(), expected, atol=1e-7)


@settings(max_examples=40, deadline=None)
@given(height=st.integers(8, 90), width=st.integers(8, 90), side=st.integers(1, 60))
def test_sizes_follow_torchvisions_rule(height, width, side):
    resized = resize_to(torch.rand(3, height, width), resized_size(height, width, side))
    longer = int(side * max(height, width) / min(height, width))
    assert sorted(resized.shape[-2:]) == sorted((side, longer))
    assert (resized.shape[-2] >= resized.shape[-1]) == (height >= width or longer == side)
    assert crop_centre(resized, side).shape == (3, side, side)


def test_resizing_is_pils_antialiased_bicubic_but_for_rounding():
    image = gradient(200, 160)
    pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float() / 255
    ours = resize_to(pixels, [64, 80])
    theirs = image.resize((80, 64), Image.Resampling.BICUBIC)
    expected = torch.from_numpy(np.asarray(theirs).copy()).permute(2, 0, 1).float() / 255
    assert ours.shape == expected.shape
    assert (ours - expected).abs().max() < 2 / 255


def test_overshoot_is_kept_as_in_the_published_path():
    edge = torch.zeros(3, 64, 64)
    edge[:, :, 32:] = 1.0
    resized = resize_to(edge, resized_size(*edge.shape[-2:], 24))
    assert resized.min() < -0.001
    assert resized.max() > 1.001


def test_normalising_by_channel():
    pixels = torch.full((1, 3, 2, 2), 0.5)
    normal = Finish((0.1, 0.2, 0.3), (1.0, 2.0, 4.0)).pixels(pixels)
    assert torch.allclose(normal[0, :, 0, 0], torch.tensor([0.4, 0.15, 0.05]))
    assert torch.equal(pixels, torch.full((1, 3, 2, 2), 0.5))
