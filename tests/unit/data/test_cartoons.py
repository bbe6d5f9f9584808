import io
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from feedrate.data.cartoon import words
from feedrate.data.cartoon.pen import ellipse, smooth
from feedrate.data.cartoon.people import LOOKS
from feedrate.data.cartoon.places import PLACES
from feedrate.data.cartoon.render import render
from feedrate.data.cartoon.scene import COLOURS, INKS, invent
from feedrate.data.cartoon.things import THINGS


def test_the_same_scene_gives_the_same_bytes_and_another_contest_others():
    scene = invent(20, 5, 0.6)
    assert render(scene, 20) == render(invent(20, 5, 0.6), 20)
    assert render(scene, 20) != render(scene, 21)
    assert invent(20, 6, 0.6) != scene


@pytest.mark.parametrize(("share", "mode"), [(1.0, "L"), (0.0, "RGB")])
def test_a_cartoon_is_a_jpeg_file_of_its_scene_s_size_and_channels(share, mode):
    scene = invent(3, 1, share)
    image = Image.open(io.BytesIO(render(scene, 3)))
    image.load()
    assert (image.format, image.mode, image.size) == ("JPEG", mode, scene.size)
    assert "progressive" not in image.info


def test_files_have_the_size_of_scanned_cartoons():
    sizes = [len(render(invent(20, contest, 0.6), 20)) for contest in range(100, 110)]
    assert 60_000 < sum(sizes) / len(sizes) < 180_000
    assert min(sizes) > 30_000


@given(st.integers(0, 10**6), st.integers(0, 10**6))
@settings(max_examples=200)
def test_a_scene_s_sides_lie_between_600_and_1200_px(seed, contest):
    scene = invent(seed, contest, 0.5)
    assert all(600 <= side <= 1200 for side in scene.size)
    assert scene.paint in (INKS if scene.grey else COLOURS)


@given(st.integers(0, 10**6))
def test_captions_tell_what_is_drawn(contest):
    scene = invent(20, contest, 0.5)
    said = words.description(scene, Random(contest))
    lower = said.lower()
    assert scene.place.name in lower or scene.place.where in lower
    assert scene.figure in lower
    assert f"{scene.paint} {scene.thing}" in lower
    assert ("left" if scene.left else "right") in lower
    assert scene.companion is None or scene.companion in lower
    assert not {"{", "}"} & set(
        said + words.quip(scene, Random(1)) + words.uncanny(scene, Random())
    )
    assert said[0].isupper()
    assert said.endswith(".")


def test_every_place_person_and_thing_occurs():
    scenes = [invent(20, contest, 0.5) for contest in range(2000)]
    assert {scene.place for scene in scenes} == set(PLACES)
    assert {scene.thing for scene in scenes} == set(THINGS)
    assert set(LOOKS) <= {scene.figure for scene in scenes}
    assert 0.4 < sum(scene.grey for scene in scenes) / len(scenes) < 0.6


def test_a_smooth_curve_passes_through_its_points():
    corners = [(0.0, 0.0), (1.0, 2.0), (3.0, 1.0), (4.0, 0.0)]
    assert set(corners) <= set(smooth(corners, closed=False))
    assert set(corners) <= set(smooth(corners, closed=True))
    assert smooth(corners[:2], closed=False) == corners[:2]


def test_an_ellipse_has_its_radii():
    points = ellipse(1, 2, 3, 4, corners=4)
    assert points[0] == pytest.approx((4, 2))
    assert points[1] == pytest.approx((1, 6))
