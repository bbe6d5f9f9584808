"""CLIP with a tokenizer that is not its own."""

import torch
from model_batches import batch


def test_the_text_is_read_at_its_end_token(make):
    """The prepared tokenizer's end token is 2, which the library takes for "the highest id"."""
    built = make("clip")
    model, inputs = built.model.eval(), batch(built)
    assert built.tokenizer.eos_token_id != model.config.text_config.eos_token_id
    with torch.no_grad():
        before = model(**inputs).text_embeds
        ids = inputs["input_ids"].clone()
        ids[inputs["attention_mask"] == 0] = 7  # what comes after the end is not seen
        after = model(**{**inputs, "input_ids": ids}).text_embeds
        ids[:, 1] = 5
        changed = model(**{**inputs, "input_ids": ids}).text_embeds
    assert torch.allclose(before, after, atol=1e-6)
    assert not torch.allclose(before, changed, atol=1e-4)


def test_its_embeddings_come_in_the_order_that_evaluation_reads(make):
    built = make("clip")
    with torch.no_grad():
        output = built.model.eval()(**batch(built))
    kept = [k for k in output if k not in {*built.other_outputs, "loss"}]
    assert kept == ["text_embeds", "image_embeds"]
