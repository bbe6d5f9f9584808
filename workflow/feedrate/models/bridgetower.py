"""BridgeTower with its image-text contrastive head, from the library's own classes."""

from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast
from transformers.models.bridgetower.configuration_bridgetower import BridgeTowerConfig
from transformers.models.bridgetower.modeling_bridgetower import BridgeTowerForContrastiveLearning

from feedrate.config.settings import LoaderSettings, ModelSettings
from feedrate.data.manifest import TOKENIZER
from feedrate.models.build import Built, ModelError
from feedrate.models.checkpoint import load_part
from feedrate.models.flops import flops_per_sample

MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
"""CLIP's pixel statistics, which BridgeTower's image processor uses."""

OTHER_OUTPUTS = ("logits", "cross_embeds", "hidden_states", "attentions")

CONTRASTIVE = {"contrastive_hidden_size": 512, "logit_scale_init_value": 2.6592}
"""What the contrastive head needs beyond BridgeTowerConfig's defaults (large-itm-mlm-itc)."""

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


def build(settings: ModelSettings, loader: LoaderSettings, prepared: Path) -> Built:
    """See feedrate.models.build."""
    if settings.checkpoint is None:
        config = make_config(settings.size)
        tokenizer = _prepared_tokenizer(prepared)
        _fit_tokenizer(config, tokenizer, settings.size)
        model = BridgeTowerForContrastiveLearning(config)
    else:
        model, tokenizer = _load(settings)
        config = model.config
    _check_length(config, loader.max_tokens)
    # The text tower's own pooler takes no part in the loss: without a gradient it would make
    # DistributedDataParallel search the graph for unused parameters at every step.
    model.bridgetower.text_model.pooler.requires_grad_(False)
    return Built(
        model=model,
        tokenizer=tokenizer,
        image_px=config.vision_config.image_size,
        mean=MEAN,
        std=STD,
        attention="eager",
        count_flops=lambda: count_flops(config, loader.max_tokens),
        other_outputs=OTHER_OUTPUTS,
    )


def make_config(size: str) -> BridgeTowerConfig:
    """The configuration of a size. Raises ModelError for one that is not known."""
    if size not in SIZES:
        raise ModelError(f"model.size: {size!r} is not one of {', '.join(SIZES)} (bridgetower)")
    return BridgeTowerConfig(
        **{**CONTRASTIVE, "text_config": {}, "vision_config": {}, **SIZES[size]}
    )


def count_flops(config: BridgeTowerConfig, max_tokens: int) -> float:
    """FLOPs of one sample of `max_tokens` tokens, forward and backward."""
    side = config.vision_config.image_size
    return flops_per_sample(
        lambda: BridgeTowerForContrastiveLearning(config),
        lambda: {
            "pixel_values": torch.empty(1, 3, side, side),
            "input_ids": torch.ones(1, max_tokens, dtype=torch.long),
            "attention_mask": torch.ones(1, max_tokens, dtype=torch.long),
            "return_loss": True,
        },
    )


def _load(settings: ModelSettings) -> tuple[Any, Any]:
    """Model (fp32 weights, whatever the file holds) and tokenizer of the checkpoint."""
    config = load_part(BridgeTowerConfig, settings)
    for name, value in CONTRASTIVE.items():
        if getattr(config, name, None) is None:
            setattr(config, name, value)
    model = load_part(
        BridgeTowerForContrastiveLearning, settings, config=config, use_safetensors=True
    )
    tokenizer = _load_tokenizer(settings)
    # Where the files are missing, transformers 5 makes a tokenizer of special tokens alone.
    if len(tokenizer) <= len(set(tokenizer.all_special_ids)):
        raise ModelError(f"model.checkpoint: {settings.checkpoint}: no tokenizer there")
    return model.float(), tokenizer


def _load_tokenizer(settings: ModelSettings) -> Any:
    """The checkpoint's tokenizer, of its own class where this transformers has that.

    transformers 5 saves the names of classes that 4.55 does not know.
    """
    from transformers import AutoTokenizer  # slow to import, and only needed here

    try:
        return load_part(AutoTokenizer, settings, trust_remote_code=False)
    except ModelError:
        return load_part(PreTrainedTokenizerFast, settings)


def _prepared_tokenizer(prepared: Path) -> Any:
    folder = prepared / TOKENIZER
    if not (folder / "tokenizer.json").is_file():
        raise ModelError(f"{folder}: no tokenizer there; prepare the data again")
    return PreTrainedTokenizerFast.from_pretrained(str(folder))


def _fit_tokenizer(config: BridgeTowerConfig, tokenizer: Any, size: str) -> None:
    """Give a new model its tokenizer's special tokens; positions are counted from padding."""
    text = config.text_config
    if len(tokenizer) > text.vocab_size:
        raise ModelError(
            f"the prepared tokenizer has {len(tokenizer)} tokens, model.size {size} takes at most "
            f"{text.vocab_size}"
        )
    if tokenizer.pad_token_id is None:
        raise ModelError("the prepared tokenizer has no padding token")
    text.pad_token_id = tokenizer.pad_token_id
    text.bos_token_id = tokenizer.bos_token_id
    text.eos_token_id = tokenizer.eos_token_id


def _check_length(config: BridgeTowerConfig, max_tokens: int) -> None:
    """RoBERTa numbers positions from the padding token's id + 1."""
    text = config.text_config
    longest = text.max_position_embeddings - text.pad_token_id - 1
    if max_tokens > longest:
        raise ModelError(f"loader.max_tokens: {max_tokens} is more than the model's {longest}")
