import io
import statistics
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from feedrate.data.drawing import describe, invent, render
from feedrate.data.shapes import COLOURS, FIGURES, INKS, PAINTS, PLACES, THINGS

SEED = 20


def pixels(scene):
    """The picture of a scene, small, in colour."""
    return Image.open(io.BytesIO(render(replace(scene, size=(300, 300)), SEED))).convert("RGB")


def share_of(paint, image):
    """The share of pixels that are close to a paint."""
    far = np.abs(np.asarray(image, dtype=int) - PAINTS[paint].rgb).max(axis=2)
    return (far < 40).mean()


def test_the_same_scene_gives_the_same_bytes_and_another_contest_or_seed_others():
    scene = invent(SEED, 5, 0.6)
    assert render(scene, SEED) == render(invent(SEED, 5, 0.6), SEED)
    assert render(scene, SEED) != render(scene, SEED + 1)
    assert invent(SEED, 6, 0.6) != scene


@pytest.mark.parametrize(("share", "mode"), [(1.0, "L"), (0.0, "RGB")])
def test_a_picture_is_a_jpeg_file_of_its_scene_s_size_and_channels(share, mode):
    scene = invent(3, 1, share)
    image = Image.open(io.BytesIO(render(scene, 3)))
    image.load()
    assert (image.format, image.mode, image.size) == ("JPEG", mode, scene.size)
    assert "progressive" not in image.info


def test_files_have_the_size_of_scanned_cartoons():
    sizes = [len(render(invent(SEED, contest, 0.6), SEED)) for contest in range(100, 115)]
    assert 70_000 < statistics.mean(sizes) < 150_000
    assert min(sizes) > 30_000


@given(st.integers(0, 10**6), st.integers(0, 10**6))
@settings(max_examples=200)
def test_a_scene_s_sides_lie_between_600_and_1200_px(seed, contest):
    scene = invent(seed, contest, 0.5)
    assert all(600 <= side <= 1200 for side in scene.size)
    assert scene.paint in (INKS if scene.grey else COLOURS)


def test_small_pictures_are_more_common_than_large_ones():
    sizes = [invent(SEED, contest, 0.6).size for contest in range(2000)]
    areas = [width * height for width, height in sizes]
    assert statistics.median(areas) < statistics.mean(areas)
    assert statistics.mean(areas) == pytest.approx(700_000, rel=0.1)
    assert {width > height for width, height in sizes} == {True, False}


@given(st.integers(0, 10**6))
def test_sentences_are_true_of_the_scene(contest):
    scene = invent(SEED, contest, 0.5)
    said = describe(scene, Random(contest))
    description, quip = said["description"].lower(), said["quip"].lower()
    for text in (description, quip):
        assert scene.place.name in text
        assert scene.thing in text
    assert scene.figure in description
    assert ("left" if scene.left else "right") in description
    words = filter(None, (scene.thing_size, scene.paint, scene.thing))
    thing = " ".join(words) + ("s" if scene.count > 1 else "")
    numbers = {1: ("a", "an"), 2: ("two",), 3: ("three",)}[scene.count]
    assert any(f"{number} {thing}" in description for number in numbers)
    assert scene.companion is None or f"small {scene.companion}" in description
    other_names = (set(FIGURES) | set(THINGS)) - {scene.figure, scene.thing, scene.companion}
    assert not any(name in description for name in other_names)
    for text in said.values():
        assert not {"{", "}"} & set(text)
        assert text[0].isupper()
        assert text[-1] in ".?"


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("contest", range(6))
def test_the_thing_is_drawn_in_its_colour_on_its_side(contest, left):
    scene = replace(invent(SEED, contest, 0.0), left=left, companion=None)
    image = pixels(scene)
    opposite = image.crop((150, 0, 300, 300) if left else (0, 0, 150, 300))
    beside = image.crop((0, 0, 150, 300) if left else (150, 0, 300, 300))
    assert share_of(scene.paint, opposite) > 0.01
    assert share_of(scene.paint, opposite) > 3 * share_of(scene.paint, beside)


def test_everything_in_a_scene_changes_the_picture():
    scene = replace(invent(SEED, 2, 0.0), count=1, thing="star", thing_size="", companion=None)
    other_place = next(place for place in PLACES if place != scene.place)
    other_figure = next(name for name in FIGURES if name != scene.figure)
    changes = [
        {"place": other_place},
        {"figure": other_figure},
        {"left": not scene.left},
        {"thing": "house"},
        {"count": 3},
        {"thing_size": "giant"},
        {"companion": other_figure},
    ]
    drawn = {pixels(scene).tobytes()} | {
        pixels(replace(scene, **change)).tobytes() for change in changes
    }
    assert len(drawn) == 1 + len(changes)


def test_every_place_figure_and_thing_occurs_equally_often():
    scenes = [invent(SEED, contest, 0.5) for contest in range(2000)]
    for names, values in (
        ([scene.place.name for scene in scenes], [place.name for place in PLACES]),
        ([scene.thing for scene in scenes], THINGS),
        ([scene.figure for scene in scenes], FIGURES),
    ):
        for start in range(0, 200, len(values)):
            assert sorted(names[start : start + len(values)]) == sorted(values)
    assert {scene.count for scene in scenes} == {1, 2, 3}
    assert {scene.paint for scene in scenes} == set(PAINTS)
    assert all(scene.companion != scene.figure for scene in scenes)
    assert 0.4 < sum(scene.grey for scene in scenes) / len(scenes) < 0.6


@pytest.mark.parametrize("shape", [*THINGS.values(), *FIGURES.values()])
def test_a_shape_stays_in_its_unit_square(shape):
    corners = [corner for part in shape for corner in part.points]
    assert all(-0.51 <= x <= 0.51 and -0.01 <= y <= 1.01 for x, y in corners)
    assert max(y for _, y in corners) > 0.9
