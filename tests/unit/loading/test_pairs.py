"""Pairs of a prepared dataset, their batches and their workers."""

import pytest
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerFast

from feedrate.config.settings import LoaderSettings
from feedrate.data.manifest import DataError
from feedrate.jobs.worker import classify
from feedrate.loading.dataset import PairDataset, collate


@pytest.fixture(scope="module")
def pairs(tiny_prepared):
    return make(tiny_prepared, "train")


def make(prepared, split):
    tokenizer = PreTrainedTokenizerFast.from_pretrained(prepared / "tokenizer")
    return PairDataset(
        prepared,
        split,
        tokenizer,
        image_px=32,
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
        loader=LoaderSettings(max_tokens=10),
    )


def test_captions_are_padded_to_the_length_asked_for(pairs):
    assert sorted(set(pairs.attention_mask.sum(dim=1).tolist())) == [6]
    assert (pairs.input_ids[:, 6:] == 1).all()  # <pad>


def test_splits_are_kept_apart(tiny_prepared, pairs):
    assert len(pairs) == 24
    assert len(make(tiny_prepared, "test")) == 6


def test_a_split_without_rows_is_told(tiny_prepared):
    with pytest.raises(DataError, match=r"samples\.parquet: no rows in split 'other'"):
        make(tiny_prepared, "other")


def test_a_damaged_image_is_named_from_within_a_worker(tiny_prepared, tmp_path):
    dataset = make(tiny_prepared, "train")
    (tmp_path / "bad.jpg").write_bytes(b"nothing")
    dataset.paths[:] = [tmp_path / "bad.jpg"] * len(dataset)
    loader = DataLoader(dataset, batch_size=2, num_workers=1, collate_fn=collate)
    with pytest.raises(DataError) as error:
        next(iter(loader))
    failure = classify(error.value)
    assert failure.infrastructure
    assert "bad.jpg: cannot be decoded" in failure.message
