"""Every model on every level of loading that a host has."""

import shutil

import msgspec
import pytest
import torch

from feedrate.cli import jobs
from feedrate.config.settings import BUILDERS, LoaderSettings, ModelSettings
from feedrate.core import plugins
from feedrate.data.manifest import store_folder, store_spec
from feedrate.devices.base import adapter
from feedrate.jobs.blocks import EndlessBatches
from feedrate.loading.dataset import PairDataset
from feedrate.loading.path import open_path
from feedrate.models.build import build_bare
from feedrate.models.builders.vit import UNKNOWN
from tiny_spec import tiny_spec

LEVELS = ["reference", "host", "cache"]


@pytest.fixture(scope="module")
def own(labelled, tmp_path_factory):
    """The prepared dataset, beside which stores may be made."""
    return shutil.copytree(labelled, tmp_path_factory.mktemp("own") / "prepared")


def make_spec(name, decode):
    loader = {"decode": decode, "max_tokens": 16}
    return tiny_spec(seed=3, dataset="own", model={"name": name}, loader=loader)


def made_store(spec, prepared):
    """The store that a run needs, made as the rule makes it."""
    folder = store_folder(spec.settings, prepared)
    settings = msgspec.json.encode(store_spec(spec.settings)).decode()
    data = str(prepared / "manifest.json")
    out = str(folder / "index.json")
    assert jobs.run("store_dataset", ["--data", data, "--settings", settings, "--out", out]) == 0
    return folder


@pytest.mark.parametrize("name", plugins.names(BUILDERS))
def test_a_model_takes_the_same_batches_of_every_level(make, own, name):
    built = make(name)
    pixels = []
    for decode in LEVELS:
        spec = make_spec(name, decode)
        store = made_store(spec, own) if decode == "cache" else None
        dataset = PairDataset(own, "train", built, spec.settings.loader, store or "")
        path = open_path(adapter("cpu", 0, 1), spec.settings.loader)
        batch = next(path.batches(dataset, EndlessBatches(len(dataset), 3, 1)))
        batch = dataset.finish(batch)
        pixels.append(batch["pixel_values"].clone())
        assert pixels[-1].shape == (3, 3, built.image_px, built.image_px)
        assert torch.isfinite(built.model(**batch)["loss"])
    reference, host, cache = pixels
    assert torch.equal(host, cache)
    assert (host - reference).abs().mean() < 0.05


def test_a_store_holds_a_classifiers_classes(make, own):
    """The test split has classes that the training split lacks."""
    spec, built = make_spec("vit", "cache"), make("vit")
    store = made_store(spec, own)
    for split in ("train", "test"):
        stored = PairDataset(own, split, built, spec.settings.loader, store)
        live = PairDataset(own, split, built, make_spec("vit", "host").settings.loader)
        assert torch.equal(stored.input_ids, live.input_ids)
        assert torch.equal(stored.attention_mask, live.attention_mask)
        assert (stored.input_ids == UNKNOWN).any() == (split == "test")


@pytest.mark.parametrize("name", plugins.names(BUILDERS))
def test_a_model_without_its_weights_tells_what_a_loader_needs(make, labelled, name):
    whole = make(name)
    bare = build_bare(
        ModelSettings(name=name, size="tiny"), LoaderSettings(max_tokens=16), labelled
    )
    assert {value.device.type for value in bare.model.parameters()} == {"meta"}
    told = ("image_px", "mean", "std", "column", "scores", "parameters")
    assert [getattr(bare, key) for key in told] == [getattr(whole, key) for key in told]
    text = ["the cat", "100"]
    options = {"padding": "max_length", "max_length": 16, "return_tensors": "pt"}
    ids = [built.tokenizer(text, **options)["input_ids"] for built in (bare, whole)]
    assert torch.equal(*ids)
