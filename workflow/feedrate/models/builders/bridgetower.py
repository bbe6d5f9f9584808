"""BridgeTower with its image-text contrastive head, from the library's own classes."""

from pathlib import Path
from typing import Any

from transformers.models.bridgetower import modeling_bridgetower
from transformers.models.bridgetower.configuration_bridgetower import BridgeTowerConfig
from transformers.models.bridgetower.modeling_bridgetower import (
    BridgeTowerForContrastiveLearning,
    BridgeTowerForImageAndTextRetrieval,
)

from feedrate.config.settings import LoaderSettings, ModelSettings
from feedrate.models.build import Built
from feedrate.models.checkpoint import load_config, load_model, load_tokenizer
from feedrate.models.flops import flops_per_sample, one_pair
from feedrate.models.layers import CLIP, use_sdpa
from feedrate.models.tokenizers import check_length, prepared_tokenizer

OFFERS = {"attention": ("eager", "sdpa")}
HEADS = {"contrastive": ("text_embeds", "image_embeds"), "matching": ("logits",)}
SIZES: dict[str, dict[str, Any]] = {
    # For CPUs: about 20 ms a sample and step on two cores at 128 tokens, 3.5 M parameters.
    "tiny": {
        "hidden_size": 128,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "contrastive_hidden_size": 128,
        "text_config": {
            "vocab_size": 4096,
            "hidden_size": 128,
            "intermediate_size": 512,
            "num_attention_heads": 2,
            "num_hidden_layers": 4,
        },
        "vision_config": {
            "hidden_size": 128,
            "num_hidden_layers": 4,
            "patch_size": 16,
            "image_size": 128,
        },
    },
    # BridgeTower/bridgetower-base: the library's defaults.
    "base": {"text_config": {}, "vision_config": {}},
    # BridgeTower/bridgetower-large-itm-mlm-itc: RoBERTa-large, ViT-L/14 at 294 px.
    "large": {
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "text_config": {
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_attention_heads": 16,
            "num_hidden_layers": 24,
        },
        "vision_config": {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "patch_size": 14,
            "image_size": 294,
        },
    },
}

ATTENTION = tuple(
    getattr(modeling_bridgetower, name)
    for name in ("BridgeTowerSelfAttention", "BridgeTowerCrossAttention")
    if hasattr(modeling_bridgetower, name)  # transformers 4 has one class for both
)
"""Attention of the text and cross-modal layers; the image tower's is torch's own, fused already."""

LAYERS = (
    modeling_bridgetower.BridgeTowerResidualAttention,
    modeling_bridgetower.BridgeTowerTextLayer,
    modeling_bridgetower.BridgeTowerBertCrossLayer,
)

OTHER_OUTPUTS = ("logits", "cross_embeds", "hidden_states", "attentions")

CLASSES = {
    "contrastive": BridgeTowerForContrastiveLearning,
    "matching": BridgeTowerForImageAndTextRetrieval,
}
"""The library's class for each head."""

CONTRASTIVE = {"contrastive_hidden_size": 512, "logit_scale_init_value": 2.6592}
"""What the contrastive head needs beyond BridgeTowerConfig's defaults (large-itm-mlm-itc)."""


def build(
    settings: ModelSettings, loader: LoaderSettings, prepared: Path, head: str = "contrastive"
) -> Built:
    """BridgeTower with a head, as `models/build.py` says."""
    if settings.checkpoint is None:
        config = make_config(settings.size)
        vocabulary = config.text_config.vocab_size
        tokenizer = prepared_tokenizer(prepared, vocabulary, settings.size)
        for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
            setattr(config.text_config, name, getattr(tokenizer, name))
        model = CLASSES[head](config)
    else:
        config = load_config(BridgeTowerConfig, settings)
        for name, value in CONTRASTIVE.items():
            if getattr(config, name, None) is None:
                setattr(config, name, value)
        model = load_model(CLASSES[head], settings, config)
        config = model.config
        tokenizer = load_tokenizer(settings)
    # RoBERTa numbers positions from the padding token's id + 1.
    text = config.text_config
    check_length(loader.max_tokens, text.max_position_embeddings - text.pad_token_id - 1)
    # The text tower's own pooler has no part in the loss: without a gradient it would make
    # DistributedDataParallel search the graph for unused parameters at every step.
    model.bridgetower.text_model.pooler.requires_grad_(False)
    if settings.attention == "sdpa":
        use_sdpa(model, ATTENTION)
    return Built(
        model=model,
        tokenizer=tokenizer,
        image_px=config.vision_config.image_size,
        **CLIP._asdict(),
        count_flops=lambda: count_flops(config, loader.max_tokens),
        other_outputs=OTHER_OUTPUTS,
        layers=LAYERS,
    )


def make_config(size: str) -> BridgeTowerConfig:
    """The configuration of a size."""
    return BridgeTowerConfig(**{**CONTRASTIVE, **SIZES[size]})


def count_flops(config: BridgeTowerConfig, max_tokens: int) -> float:
    """FLOPs of one sample of `max_tokens` tokens, forward and backward."""
    side = config.vision_config.image_size
    return flops_per_sample(
        lambda: BridgeTowerForContrastiveLearning(config),
        lambda: one_pair(side, max_tokens) | {"return_loss": True},
    )
