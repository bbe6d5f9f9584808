"""Parameters and work of every size, without memory for any of them."""

import pytest
import torch

from feedrate.config.settings import BUILDERS
from feedrate.core import plugins
from feedrate.models.build import ModelError
from feedrate.models.builders import clip, flava, vit
from feedrate.models.flops import count_flops

# Table of "Scaling Multimodal Foundation Models in TorchMultimodal": GiB in fp32, codebook counted.
FLAVA_GIB = {"350M": 1.33, "900M": 3.48, "1.8B": 6.66, "2.7B": 10.3, "4.8B": 18.1, "10B": 38}
FLAVA_PARAMETERS = {
    "350M": 357_645_303,
    "900M": 934_310_135,
    "1.8B": 1_787_832_311,
    "2.7B": 2_756_794_743,
    "4.8B": 4_872_644_215,
    "10B": 10_198_195_447,
}


def parameters(make_model):
    with torch.device("meta"):
        return sum(p.numel() for p in make_model().parameters())


@pytest.mark.parametrize("size", FLAVA_GIB)
def test_flava_has_the_published_sizes(size):
    count = parameters(lambda: flava.Flava(flava.make_config(size)))
    assert count == FLAVA_PARAMETERS[size]
    assert count * 4 / 2**30 == pytest.approx(FLAVA_GIB[size], rel=0.005)


@pytest.mark.parametrize(
    ("size", "image_px", "head", "count"),
    [
        ("huge", 224, "token", 632_199_400),
        ("huge", 256, "token", 632_276_200),
        ("huge", 224, "pooled", 632_199_400 - 2 * 1280),  # no class token, no position of it
        ("large", 224, "token", 304_326_632),
        ("base", 224, "token", 86_567_656),
    ],
)
def test_vit_has_the_published_sizes(size, image_px, head, count):
    assert parameters(lambda: vit.Vit(vit.make_config(size, image_px), head)) == count


@pytest.mark.parametrize(
    ("size", "count"), [("B-32", 151_277_313), ("B-16", 149_620_737), ("L-14", 427_616_513)]
)
def test_clip_has_the_published_sizes(size, count):
    assert parameters(lambda: clip.Clip(clip.make_config(size))) == count


@pytest.mark.parametrize(("name", "longest"), plugins.declared(BUILDERS, "LONGEST").items())
def test_the_longest_caption_is_that_of_the_model(make, name, longest):
    make(name, max_tokens=longest)
    with pytest.raises(ModelError, match=f"max_tokens: {longest + 1} .* {longest}"):
        make(name, max_tokens=longest + 1)


def test_flops_of_flava_350m(make_bare):
    """370.8 GFLOP of its own, and 52 of the codebook, which only looks."""
    flops = count_flops(make_bare("flava", "350M"), 77)
    assert flops == pytest.approx((370.8 + 52) * 1e9, rel=0.005)


def test_flops_of_clip_b32(make_bare):
    """4.4 GMAC an image and 3.0 a text of 77 tokens, forward."""
    flops = count_flops(make_bare("clip", "B-32"), 77)
    assert flops == pytest.approx(3 * 2 * (4.4e9 + 3.0e9), rel=0.02)


def vit_flops_by_hand(hidden, layers, mlp, tokens, patches):
    """Forward FLOPs of an image: the matrix products of the paper's layers, 2 a multiply-add."""
    layer = 4 * hidden**2 + 2 * hidden * mlp + 2 * tokens * hidden
    return 2 * (layers * tokens * layer + patches * 3 * 16**2 * hidden + 1000 * hidden)


@pytest.mark.parametrize(
    ("size", "hidden", "layers", "image_px", "head"),
    [
        ("huge", 1280, 32, 256, "pooled"),
        ("large", 1024, 24, 224, "token"),
        ("tiny", 128, 4, 224, "pooled"),
    ],
)
def test_flops_of_vit_are_those_of_its_matrix_products(
    make_bare, size, hidden, layers, image_px, head
):
    patches = (image_px // 16) ** 2
    tokens = patches + (head == "token")
    forward = vit_flops_by_hand(hidden, layers, 4 * hidden, tokens, patches)
    images = 2 * patches * 3 * 16**2 * hidden  # nobody asks for the images' gradient
    counted = count_flops(make_bare("vit", size, image_px=image_px, head=head), 16)
    assert counted == pytest.approx(3 * forward - images, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "switches"),
    [
        ("bridgetower", {"attention": "sdpa"}),
        ("vit", {"attention": "flash", "layout": "batch_second"}),
        ("flava", {"checkpointing": True}),
    ],
)
def test_how_attention_is_computed_changes_no_count(make, name, switches):
    """A job counts once its model is built, and must find it as it was."""
    built = make(name, **switches)
    before = built.model.config._attn_implementation
    assert count_flops(built, 16) == count_flops(make(name), 16)
    assert built.model.config._attn_implementation == before


def test_swin_base_is_the_published_one(make_bare):
    """The Swin paper's table 1: 88 M parameters, 15.4 G multiply-adds for an image of 224 px."""
    built = make_bare("swin", "base")
    assert built.parameters == 87_768_224
    assert count_flops(built, 16) == pytest.approx(3 * 2 * 15.4e9, rel=0.01)


@pytest.mark.parametrize("model", plugins.names(BUILDERS))
def test_planning_reads_the_sizes_that_the_model_has(model):
    declared = plugins.declared(BUILDERS, "SIZES")[model]
    assert tuple(declared) == tuple(plugins.load(BUILDERS, model).SIZES)
