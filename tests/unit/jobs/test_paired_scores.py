"""What training adds to a score, from the same examples before and after."""

import numpy as np
import pytest

from feedrate.jobs.scores import entry, paired


def scored(values, groups=None, **changes):
    return {**entry("matching_accuracy", values, groups=groups), "on": "test", **changes}


def gain(before, after, groups=None):
    (_, found) = paired([scored(before, groups)], [scored(after, groups)])
    return found["gain"], found["gain_low"], found["gain_high"]


def test_a_small_gain_on_the_same_examples_is_seen_where_single_intervals_overlap():
    before = np.arange(200) % 5 == 0
    after = before | (np.arange(200) % 10 == 1)
    was, now = paired([scored(before)], [scored(after)])
    assert was["high"] > now["low"], "one by one they say nothing"
    assert (now["gain"], now["gain_low"] > 0) == (pytest.approx(0.1), True)


def test_as_many_gained_as_lost_is_no_gain():
    value, low, high = gain(np.arange(100) % 4 == 0, np.arange(100) % 4 == 1)
    assert value == 0
    assert low < 0 < high


def test_captions_of_one_image_are_drawn_together():
    after = np.repeat([1, 0, 0, 0, 1, 0, 0, 1], 10)
    _, low, _ = gain(np.zeros(80), after)
    _, wide, _ = gain(np.zeros(80), after, np.repeat(np.arange(8), 10))
    assert wide < low


@pytest.mark.parametrize(
    ("before", "after"),
    [(None, [1.0]), ([1.0], None), ([1.0, 2.0], [np.nan, 2.0])],
    ids=["not scored before", "not scored after", "diverged"],
)
def test_without_both_there_is_no_gain(before, after):
    assert gain(before, after) == (None, None, None)


def test_scores_before_training_have_no_gain_and_no_examples_are_kept():
    was, now = paired([scored([1, 0])], [scored([1, 1])])
    assert (was["moment"], now["moment"]) == ("before", "after")
    assert "gain" not in was
    assert not {"examples"} & (was.keys() | now.keys())


def test_each_split_and_head_is_paired_with_itself():
    heads = [{"head": "matching"}, {"head": "contrastive"}, {"on": "validation"}]
    before = [scored([0, 0], **one) for one in heads]
    after = [scored([k == 0, k == 2], **one) for k, one in enumerate(heads)]
    found = [one["gain"] for one in paired(before, after)[3:]]
    assert found == [0.5, 0.0, 0.5]
