"""Retrieval in both directions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedrate.train import evaluation
from feedrate.train.evaluation import recall_at_1

UNIT = np.eye(4, dtype=np.float32)


def test_every_query_finds_its_own():
    assert recall_at_1(UNIT, UNIT, np.arange(4)) == 1.0


def test_a_shifted_set_is_missed_altogether():
    assert recall_at_1(UNIT, np.roll(UNIT, 1, axis=0), np.arange(4)) == 0.0


def test_any_caption_of_the_same_image_counts():
    swapped = UNIT[[1, 0, 3, 2]]
    assert recall_at_1(UNIT, swapped, np.array([0, 0, 1, 1])) == 1.0
    assert recall_at_1(UNIT, swapped, np.array([0, 1, 2, 3])) == 0.0


@given(rows=st.integers(1, 40), chunk=st.integers(1, 50), seed=st.integers(0, 9))
def test_scoring_in_parts_changes_nothing(rows, chunk, seed):
    rng = np.random.default_rng(seed)
    queries, targets = rng.normal(size=(2, rows, 5)).astype(np.float32)
    groups = rng.integers(0, 5, size=rows)
    expected = np.mean(groups[(queries @ targets.T).argmax(1)] == groups)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "_ROWS", chunk)
        assert recall_at_1(queries, targets, groups) == pytest.approx(expected)
