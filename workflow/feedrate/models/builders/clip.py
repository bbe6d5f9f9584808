"""CLIP: two towers and a contrastive loss, from the library's own classes."""

from pathlib import Path
from typing import Any

from torch import Tensor
from transformers.models.clip.configuration_clip import CLIPConfig
from transformers.models.clip.modeling_clip import CLIPEncoderLayer, CLIPModel

from feedrate.config.settings import LoaderSettings, ModelSettings
from feedrate.models.build import Built, check_length, find_tokenizer, load_config, load_model
from feedrate.models.layers import CLIP, tower

OFFERS = {"attention": ("eager", "sdpa")}
HEADS = {"contrastive": ("text_embeds", "image_embeds")}
TASK = "zero-shot-image-classification"
LONGEST = 77
SIZES = {
    # Text: hidden size, heads, layers, vocabulary. Image: hidden size, heads, layers, patch and
    # side in px. "tiny" is for CPUs: 3.3 M parameters, 0.9 GFLOP a sample at 32 tokens.
    "tiny": {"text": (128, 2, 4, 4097), "image": (192, 3, 4, 16, 128)},
    # openai/clip-vit-base-patch32, clip-vit-base-patch16 and clip-vit-large-patch14.
    "B-32": {"text": (512, 8, 12, 49408), "image": (768, 12, 12, 32, 224)},
    "B-16": {"text": (512, 8, 12, 49408), "image": (768, 12, 12, 16, 224)},
    "L-14": {"text": (768, 12, 12, 49408), "image": (1024, 16, 24, 14, 224)},
}

OTHER_OUTPUTS = ("logits_per_image", "logits_per_text", "text_model_output", "vision_model_output")
LEGACY_END = 2  # with this end token, the library pools at the highest id, its old rule


class Clip(CLIPModel):
    """CLIP for any tokenizer: its text tower pools at the end token, which it finds by its id."""

    end_token_id: int | None = None  # the tokenizer's end token, if the configuration names another

    def forward(
        self,
        pixel_values: Tensor,
        input_ids: Tensor,
        attention_mask: Tensor,
        return_loss: bool = False,
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


def build(
    settings: ModelSettings,
    loader: LoaderSettings,
    prepared: Path,
    head: str = "contrastive",  # noqa: ARG001  # there is no other
) -> Built:
    """Build CLIP; see `models/build.py`."""
    fresh = settings.checkpoint is None
    config = make_config(settings.size) if fresh else load_config(CLIPConfig, settings)
    # The last id is CLIP's end token: the prepared tokenizer must leave it free.
    tokenizer = find_tokenizer(settings, prepared, config.text_config.vocab_size - 1)
    model = Clip(config) if fresh else load_model(Clip, settings, config)
    end = config.text_config.eos_token_id
    if end != LEGACY_END and tokenizer.eos_token_id != end:
        model.end_token_id = tokenizer.eos_token_id
    check_length(loader.max_tokens, config.text_config.max_position_embeddings)
    model.set_attn_implementation(settings.attention)
    return Built(
        model=model,
        tokenizer=tokenizer,
        image_px=config.vision_config.image_size,
        **CLIP,
        other_outputs=OTHER_OUTPUTS,
        layers=(CLIPEncoderLayer,),
    )


def make_config(size: str) -> CLIPConfig:
    """The configuration of a size. Its end token is the last id, as in CLIP's vocabulary."""
    hidden, heads, layers, vocabulary = SIZES[size]["text"]
    text = {**tower(hidden, heads, layers), "vocab_size": vocabulary}
    text |= {"bos_token_id": vocabulary - 2, "eos_token_id": vocabulary - 1}
    *shape, patch_px, side_px = SIZES[size]["image"]
    image = {**tower(*shape), "patch_size": patch_px, "image_size": side_px}
    return CLIPConfig(projection_dim=hidden, text_config=text, vision_config=image)
