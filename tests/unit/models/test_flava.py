"""FLAVA's masks, its losses and its embeddings."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_batches import batch, norm, step

from feedrate.models.build import ModelError
from feedrate.models.builders.flava import IGNORED, Masking
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
    words = built.model.visual_words(batch(built)["pixel_values"])
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
