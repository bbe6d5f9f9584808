"""Datasets of all decode levels, made from the same files."""

import pytest
from transformers import PreTrainedTokenizerFast

from feedrate.config.settings import LoaderSettings, ModelSettings, Settings
from feedrate.config.store import store_spec
from feedrate.data.loading.pairs import PairDataset
from feedrate.data.loading.store import store_folder
from feedrate.data.store_writer import write_store

PX, TOKENS = 32, 10
MODEL = ModelSettings(name="bridgetower", size="tiny")


@pytest.fixture(scope="session")
def tokenizer(tiny_prepared):
    return PreTrainedTokenizerFast.from_pretrained(tiny_prepared / "tokenizer")


@pytest.fixture(scope="session")
def store_of(tiny_prepared, tokenizer):
    """The folder of the store that settings need, made once."""

    def _make(loader):
        settings = Settings(model=MODEL, loader=loader)
        folder = store_folder(settings, tiny_prepared)
        if folder and not folder.exists():
            spec = store_spec(settings)
            write_store(tiny_prepared, spec, tokenizer, PX, folder / "index.json", 1)
        return folder

    return _make


@pytest.fixture(scope="session")
def make_pairs(tiny_prepared, tokenizer, store_of):
    """A split, read as the loader settings say."""

    def _make(split="train", seed=3, **settings):
        loader = LoaderSettings(**{"max_tokens": TOKENS, **settings})
        return PairDataset(
            tiny_prepared,
            split,
            tokenizer,
            max_tokens=TOKENS,
            image_px=PX,
            mean=(0.5, 0.4, 0.3),
            std=(0.25, 0.2, 0.3),
            loader=loader,
            seed=seed,
            store=store_of(loader),
        )

    return _make
