"""Pairs of a prepared dataset, and what goes wrong with them."""

import pytest
from torch.utils.data import DataLoader

from feedrate.data.manifest import DataError
from feedrate.jobs.worker import classify
from feedrate.loading.dataset import collate


def test_captions_are_padded_to_the_length_asked_for(make_pairs):
    pairs = make_pairs(decode="reference")
    assert sorted(set(pairs.attention_mask.sum(dim=1).tolist())) == [6]
    assert (pairs.input_ids[:, 6:] == 1).all()  # <pad>


def test_splits_are_kept_apart(make_pairs):
    assert (len(make_pairs("train")), len(make_pairs("test"))) == (24, 6)
    with pytest.raises(DataError, match=r"samples\.parquet: no rows in split 'other'"):
        make_pairs("other")


def test_a_damaged_image_is_named_from_within_a_worker(make_pairs, tmp_path):
    dataset = make_pairs(decode="reference")
    (tmp_path / "bad.jpg").write_bytes(b"nothing")
    dataset.paths[:] = [tmp_path / "bad.jpg"] * len(dataset)
    loader = DataLoader(dataset, batch_size=2, num_workers=1, collate_fn=collate)
    with pytest.raises(DataError) as error:
        next(iter(loader))
    failure = classify(error.value)
    assert failure.infrastructure
    assert "bad.jpg: cannot be decoded" in failure.message
