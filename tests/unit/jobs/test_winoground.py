"""Winoground's scores, against cases worked out by hand from the published definition."""

import itertools

import numpy as np
import pytest

from feedrate.jobs.score_model import CHANCE, hits


def scored(*examples):
    """Which examples are right, given as ((c0 with i0, c0 with i1), (c1 with i0, c1 with i1))."""
    found = hits(np.array(examples, dtype=np.float32))
    return {name.removesuffix("_score"): values.tolist() for name, values in found.items()}


def test_all_is_right_where_own_pairs_score_higher_than_both_others():
    assert scored(((0.9, 0.1), (0.2, 0.8))) == {"text": [True], "image": [True], "group": [True]}


def test_all_is_wrong_where_the_captions_are_swapped():
    assert scored(((0.1, 0.9), (0.8, 0.2))) == {"text": [False], "image": [False], "group": [False]}


def test_the_text_score_compares_captions_of_an_image():
    # Image 0: 0.6 against 0.5; image 1: 0.9 against 0.8. But caption 0 prefers image 1.
    assert scored(((0.6, 0.8), (0.5, 0.9))) == {"text": [True], "image": [False], "group": [False]}


def test_the_image_score_compares_images_of_a_caption():
    # Caption 0: 0.6 against 0.5; caption 1: 0.9 against 0.8. But image 0 prefers caption 1.
    assert scored(((0.6, 0.5), (0.8, 0.9))) == {"text": [False], "image": [True], "group": [False]}


def test_one_image_of_two_is_not_enough():
    assert scored(((0.9, 0.5), (0.3, 0.2))) == {"text": [False], "image": [False], "group": [False]}


@pytest.mark.parametrize(
    "tied",
    [
        ((0.5, 0.5), (0.5, 0.5)),
        ((0.5, 0.1), (0.5, 0.9)),  # image 0 cannot tell its captions apart
        ((0.9, 0.5), (0.1, 0.5)),  # image 1 cannot
    ],
)
def test_a_tie_of_captions_is_no_text_score(tied):
    assert scored(tied)["text"] == [False]
    assert scored(tied)["group"] == [False]


@pytest.mark.parametrize("tied", [((0.5, 0.5), (0.1, 0.9)), ((0.9, 0.1), (0.5, 0.5))])
def test_a_tie_of_images_is_no_image_score(tied):
    assert scored(tied)["image"] == [False]
    assert scored(tied)["group"] == [False]


def test_examples_are_judged_apart():
    right, wrong = ((0.9, 0.1), (0.2, 0.8)), ((0.1, 0.9), (0.8, 0.2))
    assert scored(right, wrong, right)["group"] == [True, False, True]


def test_chance_is_the_share_of_the_orders_of_four_scores():
    orders = np.array(list(itertools.permutations(range(4))), dtype=np.float32).reshape(-1, 2, 2)
    shares = {name: float(values.mean()) for name, values in hits(orders).items()}
    assert shares == pytest.approx(CHANCE)
    assert list(CHANCE.values()) == [0.25, 0.25, pytest.approx(0.1667, abs=1e-4)]


def test_a_group_is_right_where_text_and_image_are():
    scores = np.random.default_rng(3).normal(size=(500, 2, 2)).astype(np.float32)
    found = hits(scores)
    assert (found["group_score"] == (found["text_score"] & found["image_score"])).all()
    assert found["text_score"].any()
    assert not found["text_score"].all()


def test_scores_that_are_no_numbers_are_never_right():
    assert scored(((np.nan, 0.1), (0.2, 0.8)))["group"] == [False]
