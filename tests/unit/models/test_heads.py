"""Heads for inference: the library's class, what it answers, and the FLOPs of its forward pass."""

import pytest
import torch

from feedrate.config.settings import LoaderSettings, ModelSettings
from feedrate.models.build import ModelError, build
from feedrate.models.flops import count_flops, empty_batch

LOADER = LoaderSettings(max_tokens=8)


def settings(name: str, **changes: str) -> ModelSettings:
    return ModelSettings(name=name, size="tiny", **changes)


@pytest.mark.parametrize(
    ("name", "head", "kind", "shapes"),
    [
        ("bridgetower", "contrastive", "BridgeTowerForContrastiveLearning", [(3, 128), (3, 128)]),
        ("bridgetower", "matching", "BridgeTowerForImageAndTextRetrieval", [(3, 2)]),
        ("clip", "contrastive", "Clip", [(3, 128), (3, 128)]),
    ],
)
def test_a_head_answers_for_every_pair(tiny_prepared, name, head, kind, shapes):
    built = build(settings(name), LOADER, tiny_prepared, head)
    assert type(built.model).__name__ == kind
    assert not built.model.training
    assert not any(weight.requires_grad for weight in built.model.parameters())
    with torch.inference_mode():
        outputs = built.model(**empty_batch(built, 8, rows=3))
    assert [tuple(outputs[answer].shape) for answer in built.answers] == shapes


@pytest.mark.parametrize(
    ("name", "head", "words"),
    [
        ("clip", "matching", "inference.head: 'matching': clip has contrastive"),
        ("flava", "contrastive", "inference.head: 'contrastive': flava has none"),
        ("nobody", "contrastive", "model.name: 'nobody' is not allowed"),
    ],
)
def test_a_head_that_a_model_lacks_is_refused(tiny_prepared, name, head, words):
    with pytest.raises(ModelError, match=words):
        build(settings(name), LOADER, tiny_prepared, head)


@pytest.mark.parametrize("name", ["bridgetower", "clip"])
def test_a_forward_pass_is_about_a_third_of_a_step(tiny_prepared, name):
    whole = count_flops(build(settings(name), LOADER, tiny_prepared), 8)
    eager, fused = (
        build(settings(name, attention=attention), LOADER, tiny_prepared, "contrastive")
        for attention in ("eager", "sdpa")
    )
    assert 0.32 < count_flops(eager, 8) / whole < 0.36
    assert count_flops(fused, 8) == count_flops(eager, 8)
