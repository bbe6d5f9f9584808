"""CLIP: two towers and a contrastive loss, from the library's own classes."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from transformers.models.clip.configuration_clip import CLIPConfig
from transformers.models.clip.modeling_clip import CLIPEncoderLayer, CLIPModel

from feedrate.config.settings import LoaderSettings, ModelSettings
from feedrate.models.build import Built, Head
from feedrate.models.checkpoint import load_config, load_part, load_tokenizer
from feedrate.models.flops import flops_per_sample, one_pair
from feedrate.models.layers import CLIP
from feedrate.models.tokenizers import check_length, prepared_tokenizer

OFFERS = {"attention": ("eager", "sdpa")}
OTHER_OUTPUTS = (
    "logits_per_image",
    "logits_per_text",
    "text_model_output",
    "vision_model_output",
)
VOCABULARY = 49408
LEGACY_END = 2
"""A configuration with this end token means: pool at the highest id (the library's old rule)."""


def _size(patch_px: int, text: tuple[int, int], image: tuple[int, int, int]) -> dict[str, Any]:
    """Text hidden size and heads; image hidden size, heads and layers."""
    (text_hidden, text_heads), (hidden, heads, layers) = text, image
    return {
        "projection_dim": text_hidden,
        "text_config": {
            "hidden_size": text_hidden,
            "intermediate_size": 4 * text_hidden,
            "num_attention_heads": text_heads,
        },
        "vision_config": {
            "hidden_size": hidden,
            "intermediate_size": 4 * hidden,
            "num_attention_heads": heads,
            "num_hidden_layers": layers,
            "patch_size": patch_px,
        },
    }


MODEL_SIZES = ("tiny", "B-32", "B-16", "L-14")
"""The names of `SIZES`, which planning reads without importing this module."""

SIZES: dict[str, dict[str, Any]] = {
    # For CPUs: 3.3 M parameters, 0.9 GFLOP a sample at 32 tokens.
    "tiny": {
        "projection_dim": 128,
        "text_config": {
            "vocab_size": 4097,
            "hidden_size": 128,
            "intermediate_size": 512,
            "num_attention_heads": 2,
            "num_hidden_layers": 4,
        },
        "vision_config": {
            "hidden_size": 192,
            "intermediate_size": 768,
            "num_attention_heads": 3,
            "num_hidden_layers": 4,
            "patch_size": 16,
            "image_size": 128,
        },
    },
    # openai/clip-vit-base-patch32, clip-vit-base-patch16 and clip-vit-large-patch14.
    "B-32": _size(32, (512, 8), (768, 12, 12)),
    "B-16": _size(16, (512, 8), (768, 12, 12)),
    "L-14": _size(14, (768, 12), (1024, 16, 24)),
}


class Clip(CLIPModel):
    """CLIP for any tokenizer: its text tower pools at the end token, found by its id."""

    end_token_id: int | None = None
    """The tokenizer's end token, where the configuration names another."""

    def forward(
        self,
        pixel_values: torch.Tensor,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        return_loss: bool = True,
    ) -> Any:
        """CLIPOutput of images (batch, 3, px, px) and tokens (batch, max_tokens)."""
        if self.end_token_id is not None:
            end = self.config.text_config.eos_token_id
            input_ids = input_ids.masked_fill(input_ids == self.end_token_id, end)
        return super().forward(
            pixel_values=pixel_values,
            input_ids=input_ids,
            attention_mask=attention_mask,
            return_loss=return_loss,
        )


HEADS = {"contrastive": Head(Clip, ("text_embeds", "image_embeds"), {"return_loss": False})}


def build(
    settings: ModelSettings, loader: LoaderSettings, prepared: Path, kind: type[Any] = Clip
) -> Built:
    """See feedrate.models.build; `kind` is the class with the head wanted."""
    if settings.checkpoint is None:
        config = make_config(settings.size)
        # The last id is CLIP's end token: the prepared tokenizer must leave it free.
        vocabulary = config.text_config.vocab_size - 1
        tokenizer = prepared_tokenizer(prepared, vocabulary, settings.size)
        model = kind(config)
    else:
        config = load_config(CLIPConfig, settings)
        model = load_part(kind, settings, config=config, use_safetensors=True).float()
        tokenizer = load_tokenizer(settings)
    end = config.text_config.eos_token_id
    if end != LEGACY_END and tokenizer.eos_token_id != end:
        model.end_token_id = tokenizer.eos_token_id
    check_length(loader.max_tokens, config.text_config.max_position_embeddings)
    model.set_attn_implementation(settings.attention)
    return Built(
        model=model,
        tokenizer=tokenizer,
        image_px=config.vision_config.image_size,
        mean=CLIP.mean,
        std=CLIP.std,
        count_flops=lambda: count_flops(config, loader.max_tokens),
        other_outputs=OTHER_OUTPUTS,
        layers=(CLIPEncoderLayer,),
    )


def make_config(size: str) -> CLIPConfig:
    """The configuration of a size; its end token is the last id, as in CLIP's vocabulary."""
    known = SIZES[size]
    last = known["text_config"].get("vocab_size", VOCABULARY) - 1
    text = {**known["text_config"], "bos_token_id": last - 1, "eos_token_id": last}
    return CLIPConfig(**{**known, "text_config": text})


def count_flops(config: CLIPConfig, max_tokens: int) -> float:
    """FLOPs of one sample of `max_tokens` tokens, forward and backward."""
    side = config.vision_config.image_size
    # A copy: the model that runs reads its attention from the configuration at every call.
    plain = deepcopy(config)
    return flops_per_sample(
        lambda: Clip._from_config(plain, attn_implementation="eager"),
        lambda: one_pair(side, max_tokens),
    )
