"""FLAVA for pre-training: masked images, texts and pairs, matching, and a contrastive loss."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, cross_entropy, normalize
from transformers.models.flava.configuration_flava import FlavaConfig
from transformers.models.flava.modeling_flava import (
    FlavaForPreTraining,
    FlavaGlobalContrastiveHead,
    FlavaImageModel,
    FlavaLayer,
    FlavaMultimodalModel,
    FlavaSelfAttention,
    FlavaTextModel,
)

from feedrate.config.settings import LoaderSettings, ModelSettings
from feedrate.models.build import (
    Built,
    ModelError,
    check_length,
    find_tokenizer,
    load_config,
    load_model,
)
from feedrate.models.layers import CLIP, use_sdpa

OFFERS = {"attention": ("eager", "sdpa"), "losses": ("all",)}
LONGEST = 512
SIZES = {
    # Hidden size, MLP size, heads, layers of each unimodal encoder and of the multimodal one.
    "tiny": (128, 512, 2, 4, 2),  # for CPUs: 4.3 M parameters and 2 GFLOP a sample
    # The table of "Scaling Multimodal Foundation Models in TorchMultimodal".
    "350M": (768, 3072, 12, 12, 6),
    "900M": (1024, 4096, 16, 24, 12),
    "1.8B": (1280, 5120, 16, 32, 16),
    "2.7B": (1408, 6144, 16, 40, 20),
    "4.8B": (1664, 8192, 16, 48, 24),
    "10B": (2048, 10240, 16, 64, 40),
}
TINY: dict[str, dict[str, int]] = {
    "image_config": {"image_size": 128, "vocab_size": 512},
    "text_config": {"vocab_size": 4096},
    "image_codebook_config": {"hidden_size": 16, "vocab_size": 512},
}
"""Other values that are smaller in the size "tiny"."""

IGNORED = -100  # label of a token that takes no part in a loss
WORD_SHARE = 0.15
"""Share of hidden words, as in BERT: 80% become the mask token, 10% another token, 10% stay."""
PATCH_SHARE = 75 / 196  # of hidden patches, as in BEiT (75 of 14 x 14); here they form no blocks
MISMATCH_SHARE = 0.1  # of pairs with another row's text (TorchMultimodal's `itm_probability`)


@dataclass(frozen=True, kw_only=True)
class Masking:
    """Hides words, patches and matching texts of a batch, on its device, with torch's generator."""

    mask_id: int
    special_ids: tuple[int, ...]  # tokens that are never hidden
    mismatch_share: float = MISMATCH_SHARE

    def mismatch(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Texts and masks (batch, tokens), some replaced by the next row's; and 1 for a match."""
        rows, device = len(input_ids), input_ids.device
        strangers = torch.rand(rows, device=device) < self.mismatch_share
        strangers[0] = False  # the losses of pairs need one
        index = (torch.arange(rows, device=device) + strangers) % rows
        return input_ids[index], attention_mask[index], (~strangers).long()

    def mask_tokens(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens (batch, tokens) with some hidden; and labels: the hidden tokens, else IGNORED."""
        real = attention_mask.bool()
        order = torch.rand(input_ids.shape, device=input_ids.device)
        for special in self.special_ids:
            order = order.masked_fill(input_ids == special, 1.0)
        # Places are sorted by their draw, with those that must stay last; the first are hidden.
        place = order.masked_fill(~real, 2.0).argsort(dim=1).argsort(dim=1)
        count = (real.sum(dim=1, keepdim=True) * WORD_SHARE).round().clamp(min=1)
        hidden = place < count
        labels = input_ids.masked_fill(~hidden, IGNORED)
        draw = torch.rand(input_ids.shape, device=input_ids.device)
        shuffled = input_ids.flatten()[torch.randperm(input_ids.numel(), device=input_ids.device)]
        masked_ids = torch.where(hidden & (draw < 0.9), shuffled.view_as(input_ids), input_ids)
        return masked_ids.masked_fill(hidden & (draw < 0.8), self.mask_id), labels

    def mask_patches(self, rows: int, patches: int, like: Tensor) -> Tensor:
        """True (rows, patches) at the hidden patches, equally many in each row."""
        draw = torch.rand(rows, patches, device=like.device)
        place = draw.argsort(dim=1).argsort(dim=1)
        return place < hidden_count(PATCH_SHARE, patches)


def hidden_count(share: float, places: int) -> int:
    """How many of a row's places are hidden; at least one, because a loss needs one."""
    return max(1, round(share * places))


class ContrastiveHead(FlavaGlobalContrastiveHead):
    """Compares the pairs of all ranks, or only of this rank if `exchanges` is off."""

    exchanges = True

    def forward(
        self, image: Tensor, text: Tensor, logit_scale: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Logits by image and by text, and the column of each row's own pair."""
        if self.exchanges:
            return super().forward(image, text, logit_scale)
        logits = image @ text.T * logit_scale.exp()
        return logits, logits.T, torch.arange(len(image), device=image.device)


class Flava(FlavaForPreTraining):
    """FLAVA on image-text pairs; masks its inputs itself, so it takes the same batches as others.
    Its losses are of pairs; with `unimodal_losses` also of masked images and texts (MIM, MLM).
    Parts without a loss are frozen: DistributedDataParallel would search them at every step."""

    masking: Masking

    def __init__(self, config: FlavaConfig) -> None:
        super().__init__(config)
        self.unimodal = getattr(config, "unimodal_losses", False)
        self.global_contrastive_head = ContrastiveHead(config)
        image = config.image_config
        self.patches = (image.image_size // image.patch_size) ** 2
        self.freeze_unused()

    def forward(
        self,
        pixel_values: Tensor,
        input_ids: Tensor,
        attention_mask: Tensor,
        return_loss: bool = True,
    ) -> dict[str, Tensor]:
        """The loss of images (batch, 3, px, px) and tokens (batch, max_tokens). In training some
        images get the text of another row, and the model learns to tell which. Evaluation keeps the
        pairs, and adds `text_embeds` and `image_embeds` (batch, hidden), normalised."""
        pixel_values = pixel_values.to(self.image_codebook.dtype)
        matches = torch.ones(len(input_ids), dtype=torch.long, device=input_ids.device)
        if self.training:
            input_ids, attention_mask, matches = self.masking.mismatch(input_ids, attention_mask)
        masked_ids, word_labels = self.masking.mask_tokens(input_ids, attention_mask)
        hidden = self.masking.mask_patches(len(input_ids), self.patches, input_ids)
        words = self.visual_words(pixel_values)
        output = super().forward(
            input_ids=input_ids,
            input_ids_masked=masked_ids,
            attention_mask=attention_mask,
            pixel_values=pixel_values,
            bool_masked_pos=hidden,
            mim_labels=words,
            mlm_labels=word_labels,
            itm_labels=matches,
            return_loss=return_loss,
        )
        loss = output.loss
        if self.unimodal and return_loss:
            patch_labels = words.masked_fill(~hidden, IGNORED)
            loss = loss + self.unimodal_loss(output, patch_labels, word_labels)
        return {"loss": loss} if self.training else {"loss": loss, **self.embeddings(output)}

    def unimodal_loss(self, output: Any, patch_labels: Tensor, word_labels: Tensor) -> Tensor:
        """MIM and MLM of the images and texts: mean cross entropies over the hidden places."""
        loss: Any = 0.0
        for head, weight, embeddings, labels in (
            (self.mim_head, self.mim_weight, output.image_masked_embeddings, patch_labels),
            (self.mlm_head, self.mlm_weight, output.text_masked_embeddings, word_labels),
        ):
            hidden = labels != IGNORED
            logits = head(embeddings[:, -labels.shape[1] :][hidden])
            loss += weight * cross_entropy(logits, labels[hidden])
        return loss

    def freeze_unused(self) -> None:
        """Freeze the codebook and the parts that no loss uses; set the pixels' statistics. Call it
        again once weights are loaded: the library makes the model on the meta device first."""
        for name, values in CLIP.items():
            value = torch.tensor(values).view(3, 1, 1)
            self.register_buffer(f"pixel_{name}", value, persistent=False)
        models = self.flava.image_model, self.flava.text_model, self.flava.multimodal_model
        unused = [self.image_codebook, *(model.pooler for model in models)]
        for part in unused if self.unimodal else (*unused, self.mim_head, self.mlm_head):
            part.requires_grad_(False)

    def hidden(self, places: int) -> int:
        """How many of a row's `places`, which are patches or words, are hidden."""
        return hidden_count(PATCH_SHARE if places == self.patches else WORD_SHARE, places)

    def get_input_embeddings(self) -> torch.nn.Module:
        """The embeddings of words, for sharding; the library does not define this for FLAVA."""
        return self.flava.text_model.embeddings.word_embeddings

    def draw_tokens(self) -> None:
        """Draw special tokens and positions at random, which the library initialises with zeros:
        gradients of 1e4 after the layer norm of zeros would take most of the clipped norm."""
        zeros = "cls_token", "mask_token", "image_model.embeddings.position_embeddings"
        for name, parameter in self.named_parameters():
            if name.endswith(zeros):
                torch.nn.init.trunc_normal_(parameter, std=self.config.initializer_range)

    def visual_words(self, pixel_values: Tensor) -> Tensor:
        """The frozen codebook's word for each patch (batch, patches), at half the resolution."""
        with torch.no_grad():
            pixels = pixel_values * self.pixel_std + self.pixel_mean
            # Sharding casts weights and inputs, but no buffers: the product is fp32.
            smaller = avg_pool2d(pixels, 2).to(self.image_codebook.dtype)
            return self.image_codebook.get_codebook_indices(smaller).flatten(1)

    def embeddings(self, output: Any) -> dict[str, Tensor]:
        """The vectors that the contrastive loss compares."""
        text = self.flava.text_projection(output.text_embeddings[:, 0])
        image = self.flava.image_projection(output.image_embeddings[:, 0])
        return {"text_embeds": normalize(text, dim=-1), "image_embeds": normalize(image, dim=-1)}


def build(settings: ModelSettings, loader: LoaderSettings, prepared: Path) -> Built:
    """Build FLAVA; see `models/build.py`."""
    fresh = settings.checkpoint is None
    config = make_config(settings.size) if fresh else load_config(FlavaConfig, settings)
    config.unimodal_losses = settings.losses == "all"
    tokenizer = find_tokenizer(settings, prepared, config.text_config.vocab_size)
    if fresh:
        config.text_config.pad_token_id = tokenizer.pad_token_id
        model = Flava(config)
        model.draw_tokens()
    else:
        model = load_model(Flava, settings, config)
        model.freeze_unused()
    if tokenizer.mask_token_id is None:
        raise ModelError("flava masks words, and the tokenizer has no mask token")
    check_length(loader.max_tokens, config.text_config.max_position_embeddings)
    model.masking = Masking(
        mask_id=tokenizer.mask_token_id, special_ids=tuple(tokenizer.all_special_ids)
    )
    if settings.attention == "sdpa":
        use_sdpa(model, (FlavaSelfAttention,))
    return Built(
        model=model,
        tokenizer=tokenizer,
        image_px=config.image_config.image_size,
        **CLIP,
        other_outputs=(),
        layers=(FlavaLayer,),
        encoders=(FlavaImageModel, FlavaTextModel, FlavaMultimodalModel),
    )


def make_config(size: str) -> FlavaConfig:
    """The configuration of a size, with its codebook (of random weights, unless loaded)."""
    hidden, mlp, heads, unimodal, multimodal = SIZES[size]
    configs: dict[str, Any] = dict(TINY) if size == "tiny" else {}
    towers = {"image_config": unimodal, "text_config": unimodal, "multimodal_config": multimodal}
    for name, layers in towers.items():
        shape = {"hidden_size": hidden, "intermediate_size": mlp, "num_attention_heads": heads}
        configs[name] = {**shape, "num_hidden_layers": layers, **configs.get(name, {})}
    return FlavaConfig(**configs, hidden_size=hidden, projection_dim=hidden)
