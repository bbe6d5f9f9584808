"""BridgeTower with its image-text contrastive head, from the library's own classes."""

from pathlib import Path
from typing import Any

from transformers.models.bridgetower import modeling_bridgetower
from transformers.models.bridgetower.configuration_bridgetower import BridgeTowerConfig
from transformers.models.bridgetower.modeling_bridgetower import (
    BridgeTowerBertCrossLayer,
    BridgeTowerForContrastiveLearning,
    BridgeTowerForImageAndTextRetrieval,
    BridgeTowerResidualAttention,
    BridgeTowerTextLayer,
)

from feedrate.config.settings import LoaderSettings, ModelSettings
from feedrate.models.build import Built, check_length, find_tokenizer, load_config, load_model
from feedrate.models.layers import CLIP, tower, use_sdpa

OFFERS = {"attention": ("eager", "sdpa")}
HEADS = {"contrastive": ("text_embeds", "image_embeds"), "matching": ("logits",)}
LONGEST = 512
SIZES = {
    # Cross-modal layers: hidden size (of all), heads, layers, size of the contrastive head. Text:
    # layers, vocabulary. Image: layers, patch and side in px.
    # "tiny" is for CPUs: 3.5 M parameters, about 20 ms a sample and step on 2 cores at 128 tokens.
    "tiny": {"cross": (128, 2, 2, 128), "text": (4, 4096), "image": (4, 16, 128)},
    # BridgeTower/bridgetower-base: the library's defaults.
    "base": {"cross": (768, 12, 6, 512), "text": (12, 50265), "image": (12, 16, 288)},
    # BridgeTower/bridgetower-large-itm-mlm-itc: RoBERTa-large, ViT-L/14 at 294 px.
    "large": {"cross": (1024, 16, 6, 512), "text": (24, 50265), "image": (24, 14, 294)},
}

ATTENTION = tuple(
    getattr(modeling_bridgetower, name)
    for name in ("BridgeTowerSelfAttention", "BridgeTowerCrossAttention")
    if hasattr(modeling_bridgetower, name)  # transformers 4 has one class for both
)
"""Attention of the text and cross-modal layers; the image tower uses torch's own fused one."""

CONTRASTIVE = {"contrastive_hidden_size": 512, "logit_scale_init_value": 2.6592}
"""Settings of the contrastive head that BridgeTowerConfig lacks (from large-itm-mlm-itc)."""


def build(
    settings: ModelSettings, loader: LoaderSettings, prepared: Path, head: str = "contrastive"
) -> Built:
    """Build BridgeTower with a head; see `models/build.py`."""
    fresh = settings.checkpoint is None
    kind: Any = BridgeTowerForContrastiveLearning
    if head == "matching":
        kind = BridgeTowerForImageAndTextRetrieval
    config = make_config(settings.size) if fresh else load_config(BridgeTowerConfig, settings)
    tokenizer = find_tokenizer(settings, prepared, config.text_config.vocab_size)
    if fresh:
        for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
            setattr(config.text_config, name, getattr(tokenizer, name))
    for name, value in CONTRASTIVE.items():
        if getattr(config, name, None) is None:
            setattr(config, name, value)
    model = kind(config) if fresh else load_model(kind, settings, config)
    config = model.config
    # RoBERTa numbers positions from the padding token's id + 1.
    text = config.text_config
    check_length(loader.max_tokens, text.max_position_embeddings - text.pad_token_id - 1)
    # The text tower's own pooler does not affect the loss. Without a gradient it would make
    # DistributedDataParallel search the graph for unused parameters at every step.
    model.bridgetower.text_model.pooler.requires_grad_(False)
    if settings.attention == "sdpa":
        use_sdpa(model, ATTENTION)
    return Built(
        model=model,
        tokenizer=tokenizer,
        image_px=config.vision_config.image_size,
        **CLIP,
        other_outputs=("logits", "cross_embeds", "hidden_states", "attentions"),
        layers=(BridgeTowerResidualAttention, BridgeTowerTextLayer, BridgeTowerBertCrossLayer),
    )


def make_config(size: str) -> BridgeTowerConfig:
    """The configuration of a size."""
    hidden, heads, layers, contrastive = SIZES[size]["cross"]
    text_layers, vocabulary = SIZES[size]["text"]
    image_layers, patch_px, side_px = SIZES[size]["image"]
    text = {"vocab_size": vocabulary, **tower(hidden, heads, text_layers)}
    image = {"hidden_size": hidden, "num_hidden_layers": image_layers}
    image |= {"patch_size": patch_px, "image_size": side_px}
    return BridgeTowerConfig(
        hidden_size=hidden,
        num_attention_heads=heads,
        num_hidden_layers=layers,
        text_config=text,
        vision_config=image,
        **{**CONTRASTIVE, "contrastive_hidden_size": contrastive},
    )
