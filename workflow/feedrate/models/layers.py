"""Changes to any model: masks, fused attention, checkpointing, half and 8-bit precision."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, functional
from torch.utils.checkpoint import checkpoint
from transformers import masking_utils

from feedrate.config.settings import TrainSettings

Kinds = tuple[type[Module], ...]
Make = Callable[..., Tensor | None]
PADDING = getattr(masking_utils, "bidirectional_mask_function", None)  # transformers 5


def without_looking(make: Make) -> Make:
    """The library's function that makes the mask of an attention, without its look whether the
    texts' mask is all ones. It looks in every eager pass, to leave such a mask out, and the host
    then waits for the device. Texts are padded, so it would hardly ever be left out."""

    def mask(*args: Any, attention_mask: Tensor | None = None, **options: Any) -> Tensor | None:
        if attention_mask is not None:
            options |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
            # Padding is the same for each query, so one row serves all. transformers 5.12 to 5.19
            # give BridgeTower's texts the mask of the image, with a row for each of its patches.
            if options.get("mask_function") is PADDING and "q_length" in options:
                options["q_length"] = 1
        return make(*args, attention_mask=attention_mask, **options)

    return mask


_MASKS = masking_utils.ALL_MASK_ATTENTION_FUNCTIONS
for _kind in ("eager", "sdpa"):
    _MASKS[_kind] = without_looking(_MASKS[_kind])


def use_sdpa(model: Module, kinds: Kinds) -> None:
    """Replace the attention of modules of `kinds` with torch's fused one, without probabilities: of
    BridgeTower and FLAVA, which transformers runs only eagerly."""
    for module in model.modules():
        if isinstance(module, kinds):
            module.forward = partial(_sdpa, module)


def running_attention(model: Module) -> str:
    """How the attention modules run: `eager`, `sdpa`, `flash`, or several, joined by `+`. A module
    is replaced by `use_sdpa`, or reads a name such as `feedrate_…_sdpa` from its configuration."""
    kinds = set()
    for module in model.modules():
        forward = vars(module).get("forward")
        if isinstance(forward, partial) and forward.func is _sdpa:
            kinds.add("sdpa")
        elif "Attention" in type(module).__name__:
            name = getattr(getattr(module, "config", None), "_attn_implementation", None)
            kinds |= {name.rpartition("_")[2]} if name else set()
    return "+".join(sorted(kinds)) or "eager"


def _sdpa(
    module: Any,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    encoder_hidden_states: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of `hidden_states` (batch, tokens, hidden) to themselves or to the encoder's."""
    source = hidden_states if encoder_hidden_states is None else encoder_hidden_states

    def split(vectors: Tensor) -> Tensor:
        """(batch, heads, tokens, dim) of (batch, tokens, hidden)."""
        return vectors.unflatten(-1, (-1, module.attention_head_size)).transpose(1, 2)

    query, key, value = module.query(hidden_states), module.key(source), module.value(source)
    mask = None if attention_mask is None else attention_mask.to(query.dtype)
    dropout = module.dropout.p if module.training else 0.0
    attention = functional.scaled_dot_product_attention
    mixed = attention(split(query), split(key), split(value), attn_mask=mask, dropout_p=dropout)
    return mixed.transpose(1, 2).flatten(-2), None


def checkpoint_layers(model: Module, kinds: Kinds) -> None:
    """Keep only the inputs of the layers of `kinds`; the backward pass computes the rest again from
    the same random state. The library lacks this for some models (BridgeTower)."""
    for module in model.modules():
        if isinstance(module, kinds):
            module.forward = partial(_checkpointed, module, module.forward)


def count_checkpointed(model: Module) -> int:
    """Number of modules that `checkpoint_layers` has changed."""
    forwards = (vars(module).get("forward") for module in model.modules())
    return sum(isinstance(f, partial) and f.func is _checkpointed for f in forwards)


def give_shapes(model: Module) -> list[str]:
    """Give parameters without a dimension the shape (1,), which shards; return their names."""
    names = [name for name, value in model.named_parameters() if value.ndim == 0]
    for name in names:
        owner, _, attribute = name.rpartition(".")
        module = model.get_submodule(owner)
        old = getattr(module, attribute)
        new = torch.nn.Parameter(old.detach().reshape(1), requires_grad=old.requires_grad)
        setattr(module, attribute, new)
    return names


def _checkpointed(module: Module, forward: Any, *args: Any, **kwargs: Any) -> Any:
    if module.training and torch.is_grad_enabled():
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)
    return forward(*args, **kwargs)


@contextmanager
def stop_exchanges(model: Module) -> Iterator[None]:
    """In this context, ranks exchange nothing in the forward pass, so they need not run in step."""
    modules: list[Any] = [part for part in model.modules() if getattr(part, "exchanges", False)]
    for module in modules:
        module.exchanges = False
    try:
        yield
    finally:
        for module in modules:
            module.exchanges = True


def cast(model: Module, train: TrainSettings) -> Module:
    """The model with weights (so also gradients and states) in the half precision of `*_full`."""
    halves = {"bf16_full": torch.bfloat16, "fp16_full": torch.float16}
    return model.to(halves[train.precision]) if train.precision in halves else model


MULTIPLE = 16  # the fp8 kernels accept matrices whose sides are multiples of this


def use_float8(model: Module, layers: Kinds, **options: Any) -> int:
    """Let the linear parts of `layers` multiply in float8 with torchao; return their number.
    Weights keep their precision, embeddings and heads do not change. `options` are of torchao's
    Float8LinearConfig. Raises ValueError if no part has a size that the kernels accept."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    parts = set()
    for layer in (module for module in model.modules() if isinstance(module, layers)):
        linears = (part for part in layer.modules() if isinstance(part, torch.nn.Linear))
        parts |= {p for p in linears if p.in_features % MULTIPLE == p.out_features % MULTIPLE == 0}
    if not parts:
        raise ValueError(f"no linear part of the layers has sides that are multiples of {MULTIPLE}")
    # The sum over samples and tokens in a weight gradient can have any length.
    config = Float8LinearConfig(pad_inner_dim=True, **options)
    convert_to_float8_training(model, module_filter_fn=lambda part, _: part in parts, config=config)
    return len(parts)


def tower(hidden: int, heads: int, layers: int) -> dict[str, int]:
    """A transformer's shape in the words of the library; MLPs are four times as wide."""
    return {
        "hidden_size": hidden,
        "intermediate_size": 4 * hidden,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
    }


CLIP: dict[str, Any] = {
    "mean": (0.48145466, 0.4578275, 0.40821073),
    "std": (0.26862954, 0.26130258, 0.27577711),
}
"""Pixel statistics by channel of the library's processors for CLIP, BridgeTower and FLAVA."""
IMAGENET: dict[str, Any] = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
"""The same for image classification on ImageNet-1K."""
