"""FLAVA's masks, its losses and its embeddings."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_batches import batch, norm, step

from feedrate.models.build import ModelError
from feedrate.models.builders.flava import IGNORED, PATCH_SHARE, WORD_SHARE, Masking, hidden_count
from feedrate.models.flops import count_flops
from feedrate.models.layers import stop_exchanges

SPECIAL = (0, 1, 2, 3)
MASKING = Masking(mask_id=9, special_ids=SPECIAL)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.integers(3, 40), st.integers(0, 10_000))
def test_hidden_words(rows, tokens, seed):
    torch.manual_seed(seed)
    ids = torch.randint(10, 30, (rows, tokens))
    lengths = torch.randint(3, tokens + 1, (rows, 1))
    mask = (torch.arange(tokens) < lengths).long()
    ids[:, 0] = 0
    ids = ids.masked_fill(mask == 0, 1)
    shown, labels = MASKING.mask_tokens(ids, mask)
    hidden = labels != IGNORED
    assert torch.equal(labels[hidden], ids[hidden])
    assert torch.equal(shown[~hidden], ids[~hidden])
    assert not hidden[mask == 0].any()
    assert not hidden[:, 0].any()
    expected = [max(1, round(0.15 * int(length))) for length in lengths]
    assert all(abs(int(h) - e) <= 1 for h, e in zip(hidden.sum(1), expected, strict=True))
    assert bool((hidden.sum(1) >= 1).all())


def test_four_fifths_of_hidden_words_are_masked():
    torch.manual_seed(1)
    ids = torch.randint(10, 30, (400, 40))
    shown, labels = MASKING.mask_tokens(ids, torch.ones_like(ids))
    hidden = labels != IGNORED
    masked = float((shown[hidden] == 9).float().mean())
    kept = float((shown[hidden] == ids[hidden]).float().mean())
    assert masked == pytest.approx(0.8, abs=0.03)
    assert kept == pytest.approx(0.1 + 0.1 / 20, abs=0.03)


def test_hidden_patches():
    torch.manual_seed(1)
    hidden = MASKING.mask_patches(50, 196, torch.zeros(1))
    assert hidden.sum(1).tolist() == [75] * 50
    assert bool(hidden.any(0).all()), "every patch has its turn"


def test_strangers_are_the_next_row_and_one_pair_always_matches():
    torch.manual_seed(1)
    ids = torch.arange(2000).view(1000, 2)
    text, mask, matched = MASKING.mismatch(ids, ids + 5)
    assert torch.equal(mask, text + 5)
    assert matched[0] == 1
    assert float(matched.float().mean()) == pytest.approx(0.9, abs=0.03)
    assert torch.equal(text[matched == 1], ids[matched == 1])
    assert torch.equal(text[matched == 0], ids.roll(-1, 0)[matched == 0])
    alone = MASKING.mismatch(ids[:1], ids[:1])
    assert alone[2].tolist() == [1]


def test_the_four_losses_of_pairs_are_in_the_sum(make):
    built = make("flava")
    seen = []
    model = built.model.train()
    inner = type(model).__mro__[1].forward

    def record(self, **inputs):
        seen.append(inner(self, **inputs).loss_info)
        return inner(self, **inputs)

    type(model).__mro__[1].forward = record
    try:
        model(**batch(built, rows=8))
    finally:
        type(model).__mro__[1].forward = inner
    found = {name for name, value in seen[0].items() if value is not None}
    assert found == {"itm", "global_contrastive", "mmm_image", "mmm_text"}


def all_losses(make, **settings):
    return make("flava", losses="all", **settings)


def test_heads_of_single_modalities_learn_only_where_their_losses_count(make):
    for built, learn in ((make("flava"), False), (all_losses(make), True)):
        _, grads = step(built)
        heads = {name for name in grads if name.startswith(("mim_head", "mlm_head"))}
        assert bool(heads) is learn
        assert all(float(grads[name].abs().sum()) > 0 for name in heads)
        assert not any(name.startswith("image_codebook") for name in grads)
        assert not any(name.startswith("flava.") and "pooler" in name for name in grads)


def test_losses_of_single_modalities_are_the_librarys(make):
    """On images alone and on texts alone the library computes MIM and MLM itself."""
    built = all_losses(make)
    model, inputs = built.model.eval(), batch(built, rows=4)
    library = type(model).__mro__[1].forward
    pixels, words, mask = (inputs[n] for n in ("pixel_values", "input_ids", "attention_mask"))
    torch.manual_seed(3)
    shown, labels = model.masking.mask_tokens(words, mask)
    hidden = model.masking.mask_patches(len(words), model.patches, words)
    with torch.no_grad():
        codes = model.visual_words(pixels)
        image = {"pixel_values": pixels, "bool_masked_pos": hidden, "mim_labels": codes.clone()}
        text = {"input_ids": words, "input_ids_masked": shown, "attention_mask": mask}
        mim = library(model, **image, return_loss=True).loss_info.mim
        mlm = library(model, **text, mlm_labels=labels, return_loss=True).loss_info.mlm
        torch.manual_seed(3)
        whole = model(**inputs)["loss"]
        model.unimodal = False
        torch.manual_seed(3)
        pairs = model(**inputs)["loss"]
    assert float(whole - pairs) == pytest.approx(float(mim + mlm), rel=1e-4)


def test_only_hidden_places_count_in_the_losses_of_single_modalities(make):
    built = all_losses(make)
    model = built.model
    image, text = torch.randn(2, 65, 128), torch.randn(2, 6, 128)
    output = SimpleNamespace(image_masked_embeddings=image, text_masked_embeddings=text)
    patches, words = torch.full((2, 64), IGNORED), torch.full((2, 6), IGNORED)
    patches[0, 3], words[1, 2] = 7, 11
    first = model.unimodal_loss(output, patches, words)
    image[0, 10], text[0, 2] = 9.0, 9.0  # not hidden
    assert torch.equal(model.unimodal_loss(output, patches, words), first)
    image[0, 1 + 3] = 9.0  # after the class token
    assert not torch.equal(model.unimodal_loss(output, patches, words), first)


def test_all_losses_fall_and_cost_the_heads_products(make):
    built = all_losses(make)
    inputs, losses = batch(built, rows=8), []
    optimizer = torch.optim.AdamW(built.model.parameters(), lr=1e-3)
    for _ in range(8):
        torch.manual_seed(1)
        loss = built.model.train()(**inputs)["loss"]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    config = built.model.config
    patches, words = hidden_count(PATCH_SHARE, 64), hidden_count(WORD_SHARE, 16)
    vocabularies = config.image_config.vocab_size, config.text_config.vocab_size
    products = sum(n * 128 * (128 + v) for n, v in zip((patches, words), vocabularies, strict=True))
    more = count_flops(built, 16) - count_flops(make("flava"), 16)
    assert more == pytest.approx(6 * products, rel=0.02)


def test_other_models_have_no_losses_to_choose(make):
    with pytest.raises(ModelError, match="losses: all is not allowed; clip offers: nothing"):
        make("clip", losses="all")


def test_evaluation_gives_embeddings_of_the_pairs_as_they_are(make):
    built = make("flava")
    model, inputs = built.model.eval(), batch(built, rows=6)
    with torch.no_grad():
        torch.manual_seed(1)
        first = model(**inputs)
        torch.manual_seed(2)
        again = model(**inputs)
    assert set(first) == {"loss", "text_embeds", "image_embeds"}
    for name in ("text_embeds", "image_embeds"):
        assert first[name].shape == (6, 128)
        assert torch.allclose(first[name].norm(dim=1), torch.ones(6), atol=1e-5)
        assert torch.equal(first[name], again[name]), "other masks, the same pairs"


def test_gradients_begin_at_a_usable_size(make):
    """With the library's tokens of zeros the norm is above 10,000."""
    _, grads = step(make("flava"))
    assert float(norm(grads)) < 50


def test_without_exchange_the_contrastive_loss_is_the_same_for_one_rank(make):
    built = make("flava")
    together = step(built)[0]
    head = built.model.global_contrastive_head
    with stop_exchanges(built.model):
        assert not head.exchanges
        assert torch.allclose(step(built)[0], together)
    assert head.exchanges
    with pytest.raises(KeyError), stop_exchanges(built.model):
        raise KeyError
    assert head.exchanges, "restored after an error too"


def test_the_codebook_is_frozen_and_sees_every_patch(make):
    built = make("flava")
    assert not any(p.requires_grad for p in built.model.image_codebook.parameters())
    words = built.model.visual_words(batch(built, rows=4)["pixel_values"])
    assert words.shape == (4, 64)
    assert int(words.min()) >= 0
    assert int(words.max()) < built.model.config.image_config.vocab_size


def test_loaded_from_a_folder_it_is_the_same_model(make, tmp_path):
    """The library loses what is frozen, and what is no weight."""
    built = make("flava")
    built.model.save_pretrained(tmp_path)
    built.tokenizer.save_pretrained(tmp_path)
    loaded = make("flava", checkpoint=str(tmp_path))
    ours, theirs = (
        {name: value.requires_grad for name, value in each.model.named_parameters()}
        for each in (built, loaded)
    )
    assert theirs == ours
    assert not all(ours.values())
    found = dict(loaded.model.named_buffers())
    for name, value in built.model.named_buffers():
        assert torch.equal(found[name], value), name
    pixels = batch(built)["pixel_values"]
    assert torch.equal(loaded.model.visual_words(pixels), built.model.visual_words(pixels))


def test_a_tokenizer_that_cannot_mask_is_told(tiny_prepared):
    from feedrate.config.settings import LoaderSettings, ModelSettings
    from feedrate.models.build import build

    with pytest.raises(ModelError, match="no mask token"):
        build(
            ModelSettings(name="flava", size="tiny"), LoaderSettings(max_tokens=16), tiny_prepared
        )
