import io
import statistics
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from feedrate.data.drawing import describe, invent, render
from feedrate.data.shapes import FIGURES, PAINTS, THINGS

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
