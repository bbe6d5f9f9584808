"""How well captions match images, by the heads that a model has: one score a pair, larger is
better."""

import importlib
from typing import Any

import torch

from feedrate.config.settings import ModelSettings
from feedrate.models.build import BUILDERS
from feedrate.models.checkpoint import load_config, load_part

Batch = dict[str, torch.Tensor]


class NoHeadError(Exception):
    """A head that cannot be scored; the message says why."""


def heads_of(model: str) -> tuple[str, ...]:
    """A model's heads, as its module has them for inference: `matching` reads image and caption
    together, `contrastive` compares the embeddings of each."""
    return tuple(getattr(importlib.import_module(BUILDERS[model]), "HEADS", ()))


def matching_head(settings: ModelSettings) -> torch.nn.Module:
    """The image-text matching head of the checkpoint that a BridgeTower starts from, in fp32.

    It is the checkpoint's own before and after contrastive training, which does not touch it.
    Raises NoHeadError where no trained one is to be had: random weights would score noise.
    """
    from transformers.models.bridgetower.configuration_bridgetower import BridgeTowerConfig
    from transformers.models.bridgetower.modeling_bridgetower import (
        BridgeTowerForImageAndTextRetrieval,
    )

    if settings.checkpoint is None:
        raise NoHeadError("training starts from random weights, and does not train this head")
    model, found = load_part(
        BridgeTowerForImageAndTextRetrieval,
        settings,
        config=load_config(BridgeTowerConfig, settings),
        use_safetensors=True,
        output_loading_info=True,
    )
    if any(name.startswith("itm_score.") for name in found["missing_keys"]):
        raise NoHeadError("the checkpoint has no weights of this head (itm_score)")
    head: torch.nn.Module = model.itm_score
    return head.float().eval()


def contrastive_scores(model: Any, pixels: torch.Tensor, texts: Batch) -> torch.Tensor:
    """Cosine similarity of the embeddings, (n, captions, images) in fp32.

    `pixels` is (n, images, 3, px, px); `texts` holds input_ids and attention_mask, each
    (n, captions, tokens), with as many captions as images.
    """
    n, images = pixels.shape[:2]
    outputs = model(
        pixel_values=pixels.flatten(0, 1),
        **{name: tokens.flatten(0, 1) for name, tokens in texts.items()},
        return_loss=False,
    )
    text = outputs.text_embeds.float().unflatten(0, (n, images))
    image = outputs.image_embeds.float().unflatten(0, (n, images))
    with _in_fp32(pixels):
        return torch.einsum("ncd,nid->nci", text, image)


def matching_scores(
    trunk: Any, head: torch.nn.Module, pixels: torch.Tensor, texts: Batch
) -> torch.Tensor:
    """The head's logit for "they match", (n, captions, images) in fp32; shapes as above.

    The library's own example ranks by this logit alone. `trunk` is a
    BridgeTowerModel; each pair passes through it.
    """
    n, images = pixels.shape[:2]
    captions = texts["input_ids"].shape[1]
    outputs = trunk(
        pixel_values=pixels.repeat(1, captions, 1, 1, 1).flatten(0, 1),
        **{
            name: tokens.repeat_interleave(images, dim=1).flatten(0, 1)
            for name, tokens in texts.items()
        },
    )
    with _in_fp32(pixels):
        logits: torch.Tensor = head(outputs.pooler_output.float())[:, 1]
    return logits.view(n, captions, images)


def _in_fp32(inputs: torch.Tensor) -> torch.autocast:
    """What is computed last, whatever the precision before it: rounded scores would tie."""
    return torch.autocast(inputs.device.type, enabled=False)
