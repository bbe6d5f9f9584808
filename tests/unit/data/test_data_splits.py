from hypothesis import given
from hypothesis import strategies as st

from feedrate.data.prepare import count_splits, share_out
from feedrate.data.rows import split_named

GROUPS = st.lists(st.text(max_size=5), max_size=60)
SHARES = st.floats(0, 1)


@given(GROUPS, SHARES, SHARES, st.integers(0, 99), st.randoms())
def test_every_group_is_in_one_split_whatever_the_order(groups, validation, test, seed, random):
    splits = share_out(groups, validation, test, seed)
    assert splits.keys() == set(groups)
    random.shuffle(groups)
    assert share_out(groups * 2, validation, test, seed) == splits


@given(GROUPS, SHARES, SHARES)
def test_training_keeps_a_group_and_a_share_above_zero_gets_one_where_it_can(groups, val, test):
    splits = list(share_out(groups, val, test, 1).values())
    if splits:
        assert "train" in splits
    if len(splits) >= 2 and val > 0:
        assert "validation" in splits
    assert val > 0 or "validation" not in splits
    assert test > 0 or "test" not in splits


def test_shares_are_met():
    splits = list(share_out(map(str, range(100)), 0.1, 0.2, 20).values())
    assert (splits.count("validation"), splits.count("test")) == (10, 20)
    assert share_out(map(str, range(100)), 0.1, 0.2, 20) != share_out(
        map(str, range(100)), 0.1, 0.2, 21
    )


def test_three_images_are_enough_for_three_splits():
    assert sorted(share_out("abc", 0.1, 0.1, 20).values()) == ["test", "train", "validation"]


def test_the_usual_names_of_splits_are_known():
    assert split_named(" Training ") == "train"
    assert split_named("val") == split_named("DEV") == "validation"
    assert split_named("test") == "test"
    assert split_named("holdout") is None


def test_counts_tell_rows_and_images_of_all_splits():
    counts = count_splits([{"split": "train", "image": i} for i in "aab"])
    assert (counts["train"].rows, counts["train"].images) == (3, 2)
    assert counts["test"].rows == 0
