"""Which rows train, which validate and which test: named by a column, or shared out by group."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from feedrate.data.manifest import SPLITS, SplitCount
from feedrate.files import digest_text

_NAMES = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing"),
}


def split_named(text: str) -> str | None:
    """The split that a word means, in any case, or None."""
    word = text.strip().lower()
    return next((split for split, words in _NAMES.items() if word in words), None)


def share_out(
    groups: Iterable[str], validation_share: float, test_share: float, seed: int
) -> dict[str, str]:
    """The split of every group (a contest, or an image), so that no group is in two splits.

    The groups are ordered by a digest of the seed and their name: the result does not depend on
    their order. A split with a share above 0 gets at least one group while training keeps one.
    """
    order = sorted(set(groups), key=lambda group: digest_text(f"{seed}/{group}"))
    splits = dict.fromkeys(order, "train")
    count, position = len(order), min(1, len(order))  # the first group trains
    for split, share in (("validation", validation_share), ("test", test_share)):
        wanted = max(1, round(share * count)) if share > 0 else 0
        for group in order[position : position + wanted]:
            splits[group] = split
        position += wanted
    return splits


def count_splits(samples: Sequence[Mapping[str, Any]]) -> dict[str, SplitCount]:
    """Rows and different images of every split, also of an empty one."""
    return {
        split: SplitCount(
            rows=sum(sample["split"] == split for sample in samples),
            images=len({sample["image"] for sample in samples if sample["split"] == split}),
        )
        for split in SPLITS
    }
