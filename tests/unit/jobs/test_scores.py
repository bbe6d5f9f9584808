"""Retrieval, multiple choice and classes against cases worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedrate.jobs import evaluation
from feedrate.jobs.evaluation import choice_hits, known_classes, ranks
from feedrate.jobs.scores import chance_of_recall

UNIT = np.eye(4, dtype=np.float32)
EACH = np.arange(4)


def test_every_query_finds_its_own_first():
    assert ranks(UNIT, UNIT, EACH, EACH).tolist() == [0, 0, 0, 0]


def test_a_shifted_set_is_missed_altogether():
    # The own target scores 0, as the other three do, but one of these scores 1: all beat or tie it.
    assert ranks(UNIT, np.roll(UNIT, 1, axis=0), EACH, EACH).tolist() == [3, 3, 3, 3]


def test_ranks_by_hand():
    queries = np.array([[1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    targets = np.array([[0.6, 0.8], [1.0, 0.0], [0.8, 0.6]], dtype=np.float32)
    # Query 0: 0.6, 1.0, 0.8; query 1: 0.8, 0.0, 0.6.
    assert ranks(queries, targets, np.array([0, 1]), np.array([0, 1, 2])).tolist() == [2, 2]
    assert ranks(queries, targets, np.array([0, 1]), np.array([1, 0, 0])).tolist() == [0, 0]


def test_any_caption_of_the_same_image_counts():
    swapped = UNIT[[1, 0, 3, 2]]
    assert (ranks(UNIT, swapped, np.array([0, 0, 1, 1]), np.array([0, 0, 1, 1])) == 0).all()


def test_equal_scores_count_against_the_model():
    same = np.ones((3, 2), dtype=np.float32)
    assert ranks(same, same, np.arange(3), np.arange(3)).tolist() == [2, 2, 2]


def test_what_is_no_number_is_never_found():
    broken = np.full((3, 2), np.nan, dtype=np.float32)
    assert ranks(broken, broken, np.arange(3), np.arange(3)).tolist() == [2, 2, 2]


def test_a_query_without_a_right_target_comes_last():
    assert ranks(UNIT[:1], UNIT, np.array([9]), EACH).tolist() == [4]


@given(rows=st.integers(1, 40), chunk=st.integers(1, 50), seed=st.integers(0, 9))
def test_scoring_in_parts_changes_nothing(rows, chunk, seed):
    rng = np.random.default_rng(seed)
    queries, targets = rng.normal(size=(2, rows, 5)).astype(np.float32)
    groups = rng.integers(0, 5, size=rows)
    first = groups[(queries @ targets.T).argmax(1)] == groups
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "_ROWS", chunk)
        assert ((ranks(queries, targets, groups, groups) == 0) == first).all()


def test_chance_with_one_right_target():
    assert chance_of_recall(EACH, EACH, 1) == pytest.approx(1 / 4)
    assert chance_of_recall(EACH, EACH, 3) == pytest.approx(3 / 4)
    assert chance_of_recall(EACH, EACH, 10) == 1.0


def test_chance_with_several_right_targets():
    # One query has 2 of 4 targets: missed twice with 2/4 * 1/3. The other has none.
    found = chance_of_recall(np.array([0, 7]), np.array([0, 0, 1, 2]), 2)
    assert found == pytest.approx((1 - 2 / 4 * 1 / 3 + 0) / 2)


@given(seed=st.integers(0, 20), k=st.integers(1, 8))
def test_chance_is_what_lots_come_to(seed, k):
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, 4, size=8)
    queries = np.unique(targets)
    drawn = np.array([rng.permutation(8)[:k] for _ in range(4000)])
    hits = [(targets[drawn] == query).any(axis=1).mean() for query in queries]
    assert chance_of_recall(queries, targets, k) == pytest.approx(np.mean(hits), abs=0.04)


def test_choices_by_hand():
    offered = np.array(
        [
            [0.1, 0.9, 0.2, 0.3, 0.4],  # right
            [0.9, 0.1, 0.2, 0.3, 0.4],  # wrong
            [0.9, 0.9, 0.2, 0.3, 0.4],  # tied: wrong
            [0.0, np.nan, 0.0, 0.0, 0.0],  # no number: wrong
            [np.nan, 0.9, 0.2, 0.3, 0.4],  # another is no number: wrong
        ],
        dtype=np.float32,
    )
    labels = np.array([1, 1, 1, 1, 1])
    assert choice_hits(offered, labels).tolist() == [True, False, False, False, False]


def test_choices_do_not_depend_on_their_order():
    rng = np.random.default_rng(3)
    offered = rng.normal(size=(50, 5)).astype(np.float32)
    labels = rng.integers(0, 5, size=50)
    order = rng.permutation(5)
    moved = np.argsort(order)[labels]
    assert (choice_hits(offered, labels) == choice_hits(offered[:, order], moved)).all()


def test_classes_that_were_not_trained_on_are_left_out():
    logits = np.array([[2.0, 1.0], [1.0, 2.0], [5.0, 1.0]], dtype=np.float32)
    assert known_classes(logits, np.array([0, 0, -100])).tolist() == [True, False]
