"""BridgeTower: its sizes, its work a sample, its weights and its tokenizer."""

import pytest
import torch
from model_batches import batch
from transformers.models.bridgetower.modeling_bridgetower import BridgeTowerForContrastiveLearning

from feedrate.config.settings import LoaderSettings, ModelSettings
from feedrate.models.build import ModelError, build, build_bare
from feedrate.models.builders import bridgetower
from feedrate.models.flops import count_flops

TINY = ModelSettings(name="bridgetower", size="tiny")
LOADER = LoaderSettings(max_tokens=16)


@pytest.fixture(scope="module")
def tiny(tiny_prepared):
    torch.manual_seed(1)
    return build(TINY, LOADER, tiny_prepared)


def count(size):
    with torch.device("meta"):
        model = BridgeTowerForContrastiveLearning(bridgetower.make_config(size))
    return sum(p.numel() for p in model.parameters())


def test_large_has_the_published_number_of_parameters():
    assert count("large") == 866_612_737


def test_base_is_the_librarys_own_configuration():
    config = bridgetower.make_config("base")
    assert (config.hidden_size, config.num_hidden_layers) == (768, 6)
    assert config.text_config.num_hidden_layers == config.vision_config.num_hidden_layers == 12
    assert config.vision_config.image_size == 288
    assert 320e6 < count("base") < 360e6


def test_it_is_compiled_as_one_graph(tiny_prepared):
    """A break between graphs would cost what compilation and graphs gain (fullgraph refuses it)."""
    torch._dynamo.reset()
    settings = ModelSettings(name="bridgetower", size="tiny", attention="sdpa")
    built = build(settings, LOADER, tiny_prepared)
    whole = torch.compile(built.model, fullgraph=True, backend="eager")
    assert torch.isfinite(whole(**batch(built))["loss"])


def test_the_flops_of_a_sample_are_those_that_the_sources_page_states(tiny_prepared):
    settings = ModelSettings(name="bridgetower", size="large")
    built = build_bare(settings, LOADER, tiny_prepared)
    head = build(settings, LOADER, tiny_prepared, "contrastive", on="meta")
    assert round(count_flops(head, 128) / 1e9) == 496
    assert round(count_flops(built, 128) / 1e9) == 1489


def test_a_folder_without_tokenizer_is_told(tmp_path):
    with pytest.raises(ModelError, match="no tokenizer there; prepare the data again"):
        build(TINY, LOADER, tmp_path)


def test_a_tokenizer_too_large_for_the_model_is_told(tiny_prepared, monkeypatch):
    monkeypatch.setitem(bridgetower.SIZES["tiny"], "text", (4, 8))
    with pytest.raises(ModelError, match=r"has 16 tokens, model\.size tiny takes at most 8"):
        build(TINY, LOADER, tiny_prepared)


@pytest.fixture
def checkpoint(tiny, tmp_path):
    folder = tmp_path / "checkpoint"
    tiny.model.save_pretrained(folder)
    tiny.tokenizer.save_pretrained(folder)
    return folder


def load(checkpoint, prepared):
    settings = ModelSettings(name="bridgetower", size="tiny", checkpoint=str(checkpoint))
    return build(settings, LOADER, prepared)


def test_a_checkpoint_folder_gives_the_same_model(tiny, checkpoint, tiny_prepared):
    loaded = load(checkpoint, tiny_prepared)
    assert len(loaded.tokenizer) == len(tiny.tokenizer)
    same = batch(tiny)
    with torch.no_grad():
        ours, theirs = (m.model.eval()(**same).loss for m in (tiny, loaded))
    assert torch.allclose(ours, theirs)
    assert next(loaded.model.parameters()).dtype == torch.float32


def test_a_half_precision_checkpoint_is_trained_with_full_weights(tiny, tmp_path, tiny_prepared):
    half = bridgetower.BridgeTowerForContrastiveLearning(tiny.model.config).to(torch.bfloat16)
    half.save_pretrained(tmp_path / "half")
    tiny.tokenizer.save_pretrained(tmp_path / "half")
    loaded = load(tmp_path / "half", tiny_prepared)
    assert {p.dtype for p in loaded.model.parameters()} == {torch.float32}


def test_pickles_are_never_read(checkpoint, tiny_prepared):
    (checkpoint / "model.safetensors").unlink()
    (checkpoint / "pytorch_model.bin").write_bytes(b"a pickle")
    with pytest.raises(ModelError, match=r"only pytorch_model\.bin, which is a pickle"):
        load(checkpoint, tiny_prepared)


def test_a_checkpoint_without_tokenizer_or_configuration_is_told(checkpoint, tiny_prepared):
    for file in checkpoint.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ModelError, match=r"model\.checkpoint: .*: no tokenizer there"):
        load(checkpoint, tiny_prepared)
    (checkpoint / "config.json").unlink()
    with pytest.raises(ModelError, match=r"model\.checkpoint: .*config\.json"):
        load(checkpoint, tiny_prepared)


@pytest.mark.parametrize("message", ["We couldn't connect to the hub.\nSecond line", ""])
def test_a_hub_that_is_not_reached_is_told_in_a_sentence(tiny_prepared, monkeypatch, message):
    def offline(*_args, **_kwargs):
        raise OSError(message)

    monkeypatch.setattr(bridgetower.BridgeTowerConfig, "from_pretrained", offline)
    settings = ModelSettings(
        name="bridgetower", size="large", checkpoint="group/model", revision="abc"
    )
    with pytest.raises(ModelError) as error:
        build(settings, LOADER, tiny_prepared)
    assert "group/model (revision abc) cannot be loaded from the hub" in str(error.value)
    assert "without a network give a folder, or null for random weights" in str(error.value)
    assert "\n" not in str(error.value)
