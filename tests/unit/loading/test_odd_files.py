"""The same odd files on all levels: sizes, modes, orientation tags, damage."""

import io
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from feedrate.config.settings import LoaderSettings, ModelSettings, Settings
from feedrate.data.manifest import STORE_INDEX, DataError, store_folder, store_spec
from feedrate.devices.kinds import cpu
from feedrate.jobs.store import write_store
from feedrate.loading.dataset import PairDataset
from feedrate.loading.path import open_path

PX = 32
LEVELS = {
    "reference": {"decode": "reference"},
    "host": {"decode": "host"},
    "host, scaled": {"decode": "host", "scaled_decode": True},
    "cache": {"decode": "cache"},
    "device": {"decode": "device"},
}
NEAR = {"reference": 0, "host": 0.4, "host, scaled": 10, "cache": 0.4, "device": 0.01}
"""Mean absolute difference to the reference's pixels, of 255, where these are clipped to bytes."""
ROWS = 6
"""Rows of the split `test`; two share a picture."""

each_level = pytest.mark.parametrize("level", LEVELS)


class Rows(list):
    batch_size = ROWS


@pytest.fixture
def own(tiny_prepared, tmp_path):
    """A prepared dataset that a test may change."""
    return shutil.copytree(tiny_prepared, tmp_path / "prepared")


@pytest.fixture
def load(own, tokenizer, calls, cuda):
    """A level's pixels, of 0 to 255, of all rows of the split `test`."""

    def _load(level):
        loader = LoaderSettings(**LEVELS[level], max_tokens=10)
        model = ModelSettings(name="bridgetower", size="tiny")
        half = (0.5, 0.5, 0.5)
        inputs = SimpleNamespace(
            tokenizer=tokenizer, image_px=PX, mean=half, std=half, column="caption"
        )
        store = store_folder(Settings(model=model, loader=loader), own)
        if store:
            spec = store_spec(Settings(model=model, loader=loader))
            write_store(own, spec, inputs, store / STORE_INDEX, 1)
        dataset = PairDataset(own, "test", inputs, loader, store or "")
        device = cuda if level == "device" else cpu.DeviceAdapter(0, 1)
        (batch,) = open_path(device, loader).batches(dataset, Rows([list(range(ROWS))]))
        return (dataset.finish(batch)["pixel_values"] * 0.5 + 0.5) * 255

    return _load


def picture(width, height, mode="RGB", seed=0):
    """Smooth shapes and some noise, as drawings have."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 255, (5, 5, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))
    noise = rng.integers(-9, 9, smooth.shape)
    return Image.fromarray((smooth + noise).clip(0, 255).astype(np.uint8)).convert(mode)


def lay(own, images, format="JPEG", **options):
    """The pictures of the split `test`, in turn."""
    for number in range(ROWS // 2):
        path = own / f"images/test-{number}.jpg"
        images[number % len(images)].save(path, format, **options)


def assert_near(found, wanted, level):
    assert found.shape == wanted.shape == (ROWS, 3, PX, PX)
    off = (found.clamp(0, 255) - wanted.clamp(0, 255)).abs().mean(dim=(1, 2, 3))
    assert off.max() <= NEAR[level]


@each_level
@pytest.mark.parametrize(
    "sizes", [[(1, 1), (3, 300), (300, 3)], [(32, 32), (33, 31), (64, 64)], [(700, 250)]]
)
def test_sizes(own, load, level, sizes):
    lay(own, [picture(*size) for size in sizes], quality=95)
    assert_near(load(level), load("reference"), level)


@pytest.mark.parametrize("level", [level for level in LEVELS if level != "device"])
@pytest.mark.parametrize(
    ("format", "mode"), [("JPEG", "CMYK"), ("PNG", "P"), ("PNG", "RGBA"), ("PNG", "LA")]
)
def test_other_files_have_the_references_pixels(own, load, level, format, mode):
    lay(own, [picture(90, 70, mode)], format)
    assert_near(load(level), load("reference"), level)


@each_level
@pytest.mark.parametrize("orientation", [3, 6])
def test_an_orientation_tag_turns_nothing(own, load, level, orientation):
    """Preprocessing has turned the picture and left no tag; no level may turn it again."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    lay(own, [picture(80, 50)], quality=95)
    plain = load(level)
    lay(own, [picture(80, 50)], quality=95, exif=exif)
    assert torch.equal(load(level), plain)


def whole():
    stream = io.BytesIO()
    picture(120, 90).save(stream, "JPEG")
    return stream.getvalue()


@each_level
@pytest.mark.parametrize(
    "contents", [b"", b"nothing", whole()[:-900], None], ids=["empty", "text", "cut", "missing"]
)
def test_a_damaged_file_is_named_and_nothing_takes_its_place(own, load, level, contents):
    path = own / "images/test-1.jpg"
    path.unlink() if contents is None else path.write_bytes(contents)
    with pytest.raises(DataError, match=r"test-1\.jpg: cannot be decoded"):
        load(level)


@each_level
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    sizes=st.lists(st.tuples(st.integers(8, 500), st.integers(8, 500)), min_size=3, max_size=3),
    mode=st.sampled_from(["L", "RGB"]),
)
def test_pictures_of_any_size(own, load, level, sizes, mode):
    lay(own, [picture(*size, mode, seed) for seed, size in enumerate(sizes)], quality=95)
    pixels = load(level)
    assert pixels.shape == (ROWS, 3, PX, PX)
    assert torch.isfinite(pixels).all()
    assert_near(pixels, load("reference"), level)
