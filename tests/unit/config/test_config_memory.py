"""Cards with less memory: the studies give them batches that fit."""

from functools import cache

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from feedrate.config.plan import make_plan, study_settings
from feedrate.config.settings import TrainSettings
from feedrate.config.study import adapt_keys
from feedrate.models.builders import bridgetower, vit
from feedrate.models.flops import GIB, state_gib

LOADING = "bridgetower-dataloading"
TRAINED = (LOADING, "bridgetower-learning", "bridgetower-quality", "dataloading-levels")
TRAINED += ("gaudi-accelerations", "vit-speedups")
USABLE = 0.95
"""Share of a card's memory that fragments leave."""
CONTEXT_GIB = 1.0
"""CUDA's context and the buffers of NCCL and cuBLAS."""
VIT_GIB = {224: 0.557, 256: 0.757}
"""What a sample of ViT-H/16 keeps in fp32, by its side in px; counted as `kept_gib` does."""
KEPT_GIB = {
    ("large", True): (1.5, 1.07),
    ("large", False): (0.0, 1.8),
    ("base", True): (0.54, 0.43),
    ("base", False): (0.0, 0.71),
}
"""What BridgeTower keeps for the backward pass, by size and whether in half precision: for every
batch (weights in half precision), and for each sample of 128 tokens."""


@cache
def weights(model, size):
    with torch.device("meta"):
        if model == "vit":
            return vit.Vit(vit.make_config(size), "token")
        return bridgetower.CLASSES["contrastive"](bridgetower.make_config(size))


def kept_gib(size, half, samples):
    """Storages that the backward pass of BridgeTower needs, its fp32 weights apart."""
    found = {}
    side_px = bridgetower.SIZES[size]["image"][2]

    def keep(tensor):
        storage = tensor.untyped_storage()
        found[id(storage)] = storage
        return tensor

    with FakeTensorMode(allow_non_fake_inputs=True):
        config = bridgetower.make_config(size)
        model = bridgetower.CLASSES["contrastive"](config).train()
        tokens = torch.ones(samples, 128, dtype=torch.long)
        batch = {"pixel_values": torch.empty(samples, 3, side_px, side_px), "input_ids": tokens}
        hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
        with hooks, torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            model(**batch, attention_mask=tokens.clone(), return_loss=True)
        own = {id(weight.untyped_storage()) for weight in model.parameters()}
    return sum(s.nbytes() for key, s in found.items() if key not in own) / GIB


def needed_gib(spec):
    """Memory of a step of a run, without the layers that other techniques save."""
    train, model = spec.settings.train, spec.settings.model
    built = weights(model.name, model.size)
    buckets = sum(p.numel() for p in built.parameters() if p.requires_grad) * 4 / GIB
    gib = state_gib(built, train, spec.count) + buckets * (spec.count > 1) + CONTEXT_GIB
    if model.name == "vit":
        return gib + VIT_GIB[model.image_px or 224] * train.batch_size
    fixed, each = KEPT_GIB[model.size, train.precision != "fp32"]
    return gib + fixed + each * train.batch_size


def cards(project):
    return [name for name, d in project.devices.items() if d.kind == "cuda"]


def test_what_training_keeps_is_as_counted():
    """With tensors that have a size and no memory."""
    weights_gib = state_gib(weights("bridgetower", "large"), TrainSettings(precision="fp32"), 1)
    assert weights_gib == pytest.approx(12.9, abs=0.1)
    few, more = kept_gib("large", True, 2), kept_gib("large", True, 4)
    fixed, each = KEPT_GIB["large", True]
    assert (more - few) / 2 == pytest.approx(each, abs=0.03)
    assert 2 * few - more == pytest.approx(fixed, abs=0.1)


@pytest.mark.parametrize("study", TRAINED)
def test_the_baseline_of_every_study_fits_on_every_card(copy, project, study):
    loaded = copy.load(studies=[study], devices=cards(project))
    baseline = loaded.studies[study].baseline
    seen = set()
    for spec in make_plan(loaded).runs.values():
        if spec.levels == baseline:
            seen.add(spec.device)
            has_gib = USABLE * project.devices[spec.device].memory_gib
            assert needed_gib(spec) <= has_gib, (spec.device, spec.settings.train.batch_size)
    assert seen == set(cards(project))


@pytest.mark.parametrize(
    ("device", "batch", "size"),
    [
        ("h100", 48, "large"),
        ("a100-80gb", 48, "large"),
        ("gaudi2", 48, "large"),
        ("l40s", 16, "large"),
        ("rtx-4090", 4, "large"),
        ("l4", 2, "large"),
        ("t4", 8, "base"),
        ("cpu", 8, "tiny"),
    ],
)
def test_the_batch_follows_from_the_memory(project, device, batch, size):
    settings = study_settings(project, LOADING, device)
    assert (settings.train.batch_size, settings.model.size) == (batch, size)


def test_the_published_batch_of_vit_does_not_fit_into_40_gb_and_half_of_it_twice_does(copy):
    """560 on eight: 70 each, or two micro-steps of 35."""
    project = copy.load(studies=["vit-speedups"], devices=["a100-40gb"])
    train = study_settings(project, "vit-speedups", "a100-40gb").train
    assert train.batch_size * train.gradient_accumulation * 8 == 560
    states_gib = state_gib(weights("vit", "huge"), train, 8)
    assert states_gib == pytest.approx(9.4, abs=0.05)
    assert VIT_GIB[224] * 70 == pytest.approx(39.0, abs=0.05)
    assert states_gib + VIT_GIB[224] * 70 > 40
    runs = make_plan(project).runs.values()
    single = [s for s in runs if s.settings.train.precision in ("fp32", "tf32")]
    assert {s.levels["technique"] for s in single} >= {"baseline", "fp32", "image-256px"}
    assert max(map(needed_gib, single)) <= USABLE * 40


def test_cards_without_bf16_train_in_fp16(project):
    assert study_settings(project, LOADING, "t4").train.precision == "fp16"
    assert study_settings(project, LOADING, "v100").train.precision == "fp16"


def test_a_study_may_say_more_about_a_card_than_its_memory_does(copy):
    copy.edit(
        f"studies/{LOADING}.yaml",
        ("adapt:\n", "adapt:\n  rtx-4090: {settings: {train: {batch_size: 3}}}\n"),
    )
    project = copy.load()
    assert study_settings(project, LOADING, "rtx-4090").train.batch_size == 3
    keys = adapt_keys(project.studies[LOADING], "rtx-4090", project.devices["rtx-4090"])
    assert keys == ["cuda", "below-70-gib", "below-36-gib", "below-30-gib", "rtx-4090"]


def test_a_limit_that_is_none_is_told(copy):
    copy.edit(f"studies/{LOADING}.yaml", ("below-70-gib", "below-70-gb"))
    assert "adapt: 'below-70-gb' is not allowed" in copy.error()
