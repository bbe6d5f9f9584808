"""Every model: it learns, its work is as counted, and its switches change no result."""

import pytest
import torch
from model_batches import batch, norm, step, without_dropout
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from feedrate.models.build import ModelError
from feedrate.models.flops import count_flops
from feedrate.models.layers import running_attention

NAMES = ["bridgetower", "clip", "flava", "swin", "vit"]
SWITCHES = [
    ("bridgetower", {"attention": "sdpa"}),
    ("clip", {"attention": "sdpa"}),
    ("flava", {"attention": "sdpa"}),
    ("vit", {"attention": "sdpa"}),
    ("vit", {"attention": "flash"}),
    ("vit", {"layout": "batch_second"}),
    ("vit", {"layout": "batch_second", "attention": "sdpa"}),
    ("vit", {"layout": "batch_second", "attention": "flash"}),
    ("vit", {"layout": "batch_second", "head": "pooled"}),
]


def reference(switches):
    """The same model without the switches that must not change a number."""
    return {name: value for name, value in switches.items() if name == "head"}


@pytest.mark.parametrize("name", NAMES)
def test_it_learns_a_batch_with_all_its_parameters(make, name):
    built = make(name)
    optimizer = torch.optim.AdamW(built.model.parameters(), lr=1e-3)
    losses = []
    for _ in range(7):
        loss, grads = step(built, seed=5, rows=4)
        assert {n for n, p in built.model.named_parameters() if p.requires_grad} == set(grads)
        losses.append(float(loss))
        optimizer.step()
    assert losses[-1] < 0.8 * losses[0], losses


@pytest.mark.parametrize("name", NAMES)
def test_flops_counted_are_the_flops_done(make, name):
    built = make(name)
    if name == "flava":
        built.model.masking = type(built.model.masking)(
            mask_id=built.tokenizer.mask_token_id, special_ids=(), mismatch_share=0.0
        )
    # The counter does not know the CPU's fused kernel, which BridgeTower's image tower takes.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        step(built, rows=1, padded=False)
    assert counter.get_total_flops() == pytest.approx(count_flops(built, 16), rel=2e-4)


@pytest.mark.parametrize(("name", "switches"), SWITCHES)
def test_switches_change_no_result_in_fp32(make, name, switches):
    plain, switched = (make(name, **s) for s in (reference(switches), switches))
    for built in (plain, switched):
        without_dropout(built.model)
    (loss, grads), (loss_2, grads_2) = step(plain), step(switched)
    assert torch.allclose(loss, loss_2, atol=2e-6)
    assert set(grads) == set(grads_2)
    for key, grad in grads.items():
        assert torch.allclose(grad, grads_2[key], atol=1e-5, rtol=1e-3), key


@pytest.mark.parametrize(("name", "switches"), [*SWITCHES[:5], *SWITCHES[6:7]])
def test_switches_change_no_more_than_rounding_in_bf16(make, name, switches):
    plain, switched = (make(name, **s) for s in (reference(switches), switches))
    for built in (plain, switched):
        without_dropout(built.model)
    (loss, grads), (loss_2, grads_2) = (step(b, bf16=True, rows=2) for b in (plain, switched))
    assert torch.allclose(loss, loss_2, rtol=0.02, atol=0.02)
    assert float(norm(grads_2) / norm(grads)) == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("name", NAMES)
def test_weights_in_half_precision_take_the_same_batches(make, name):
    whole, half = make(name), make(name)
    half.model.to(torch.bfloat16)
    for built in (whole, half):
        without_dropout(built.model)
    (loss, _), (loss_2, grads) = step(whole), step(half)
    assert {grad.dtype for grad in grads.values()} == {torch.bfloat16}
    assert torch.allclose(loss, loss_2.float(), rtol=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_checkpointing_gives_the_same_bits(make, name):
    """With dropout: the backward pass draws as the forward pass did."""
    (loss, grads), (loss_2, grads_2) = step(make(name)), step(make(name, checkpointing=True))
    assert torch.equal(loss, loss_2)
    assert all(torch.equal(grad, grads_2[key]) for key, grad in grads.items())


@pytest.mark.parametrize("name", NAMES)
def test_checkpointing_keeps_less(make, name):
    def kept(built):
        total = 0

        def pack(tensor):
            nonlocal total
            total += tensor.numel()
            return tensor

        inputs = batch(built)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            built.model.train()(**inputs)["loss"]
        return total

    assert kept(make(name, checkpointing=True)) < 0.5 * kept(make(name))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "swin"])  # which has one
def test_attention_told_is_the_attention_that_runs(make, name):
    for attention in ("eager", "sdpa"):
        built = make(name, attention=attention)
        assert running_attention(built.model) == attention
        with torch.profiler.profile() as profile, torch.no_grad():
            built.model.eval()(**batch(built))
        fused = sum(
            event.count
            for event in profile.key_averages()
            if event.key == "aten::scaled_dot_product_attention"
        )
        # BridgeTower's image tower is torch's own MultiheadAttention, fused whatever is asked for.
        base = built.model.config.vision_config.num_hidden_layers if name == "bridgetower" else 0
        assert (fused > base) == (attention == "sdpa"), fused


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("bridgetower", {"attention": "flash"}, "attention: flash .* offers: eager, sdpa"),
        ("clip", {"head": "pooled"}, "model.head: pooled is not allowed; clip offers: token"),
        ("flava", {"image_px": 256}, "model.image_px: 256 is not allowed; flava offers: null"),
        ("vit", {"image_px": 250}, "image_px: 250 .* null or 16 to 1024"),
        ("flava", {"layout": "batch_second"}, "model.layout: batch_second"),
        ("vit", {"size": "giant"}, "'giant' is not allowed; sizes of vit: tiny, base, large, huge"),
    ],
)
def test_what_a_model_lacks_is_told(make, name, settings, message):
    with pytest.raises(ModelError, match=message):
        make(name, **settings)
