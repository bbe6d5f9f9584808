"""What is done to any model: fused attention, checkpointing, half precision, no exchanges."""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from feedrate.config.settings import TrainSettings

Kinds = tuple[type[torch.nn.Module], ...]


def use_sdpa(model: torch.nn.Module, kinds: Kinds) -> None:
    """Give the attention modules of `kinds` torch's fused attention in place of the library's.

    For modules with the linear layers `query`, `key`, `value`, as BridgeTower's and FLAVA's, which
    transformers runs eagerly only. Scores, masks and dropout mean the same; the probabilities are
    not given out.
    """
    for module in model.modules():
        if isinstance(module, kinds):
            module.forward = partial(_sdpa, module)


def running_attention(model: torch.nn.Module) -> str:
    """What the attention modules run by: `eager`, `sdpa`, `flash`, or several, joined by `+`.

    Read from the modules themselves: from a fused one put in their place, else from the name in
    the configuration that they look at in every pass (of our own, `feedrate_…_sdpa`).
    """
    found = set()
    for module in model.modules():
        forward = vars(module).get("forward")
        if isinstance(forward, partial) and forward.func is _sdpa:
            found.add("sdpa")
        elif "Attention" in type(module).__name__:
            name = getattr(getattr(module, "config", None), "_attn_implementation", None)
            found |= {name.rpartition("_")[2]} if name else set()
    return "+".join(sorted(found)) or "eager"


def _sdpa(
    module: Any,
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    encoder_hidden_states: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of `hidden_states` (batch, tokens, hidden) to themselves or to the encoder's.

    `attention_mask` is added to the scores, as the library makes it for its eager attention.
    """
    source = hidden_states if encoder_hidden_states is None else encoder_hidden_states
    query, key, value = (
        linear(states).unflatten(-1, (-1, module.attention_head_size)).transpose(1, 2)
        for linear, states in (
            (module.query, hidden_states),
            (module.key, source),
            (module.value, source),
        )
    )
    mixed = scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=None if attention_mask is None else attention_mask.to(query.dtype),
        dropout_p=module.dropout.p if module.training else 0.0,
    )
    return mixed.transpose(1, 2).flatten(-2), None


def checkpoint_layers(model: torch.nn.Module, kinds: Kinds) -> None:
    """Keep only the inputs of the layers of `kinds`; the backward pass computes the rest again.

    The same for all models, whether the library supports it (BridgeTower has no support) or not.
    The random state is restored, so that the numbers stay the same.
    """
    for module in model.modules():
        if isinstance(module, kinds):
            module.forward = partial(_checkpointed, module, module.forward)


def count_checkpointed(model: torch.nn.Module) -> int:
    """How many modules `checkpoint_layers` has changed."""
    forwards = (vars(module).get("forward") for module in model.modules())
    return sum(isinstance(f, partial) and f.func is _checkpointed for f in forwards)


def give_shapes(model: torch.nn.Module) -> list[str]:
    """Make parameters without a dimension ones of shape (1,), which can be sharded; their names.

    A contrastive loss's scale is one; multiplied with logits it means the same.
    """
    named = [name for name, value in model.named_parameters() if value.ndim == 0]
    for name in named:
        owner, _, attribute = name.rpartition(".")
        module = model.get_submodule(owner)
        old = getattr(module, attribute)
        new = torch.nn.Parameter(old.detach().reshape(1), requires_grad=old.requires_grad)
        setattr(module, attribute, new)
    return named


def _checkpointed(module: torch.nn.Module, forward: Any, *args: Any, **kwargs: Any) -> Any:
    if module.training and torch.is_grad_enabled():
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)
    return forward(*args, **kwargs)


def stop_exchanges(model: torch.nn.Module) -> None:
    """Let the forward pass exchange nothing between ranks, so that they may run out of step."""
    for module in model.modules():
        part: Any = module
        if hasattr(part, "exchanges"):
            part.exchanges = False


def cast(model: torch.nn.Module, train: TrainSettings) -> torch.nn.Module:
    """The model with its weights, and so its gradients and states, in half precision if asked."""
    halves = {"bf16_full": torch.bfloat16, "fp16_full": torch.float16}
    return model.to(halves[train.precision]) if train.precision in halves else model


# Matrix multiplications of a model's layers in 8-bit floating point, by torchao.

MULTIPLE = 16
"""Sides of a matrix that the fp8 kernels take are multiples of this."""

Float8Kinds = tuple[type[torch.nn.Module], ...]


def use_float8(model: torch.nn.Module, layers: Float8Kinds, **options: Any) -> int:
    """Let the linear parts of `layers` multiply in float8, in place; how many they are.

    What stands outside the layers (embeddings, heads) keeps its precision, as is usual. Weights,
    gradients and states stay as they are: inputs, weights and gradients are scaled by their largest
    value and cast at each multiplication. `options` are torchao's Float8LinearConfig's.
    Raises ValueError where no part is of a size that the kernels take.
    """
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    inside = [
        part
        for layer in model.modules()
        if isinstance(layer, layers)
        for part in layer.modules()
        if _fits(part)
    ]
    if not inside:
        raise ValueError(f"no linear part of the layers has sides that are multiples of {MULTIPLE}")
    wanted = {id(part) for part in inside}
    convert_to_float8_training(
        model,
        module_filter_fn=partial(_is_one_of, wanted),
        # The sum over samples and tokens in a weight gradient is of any length.
        config=Float8LinearConfig(pad_inner_dim=True, **options),
    )
    return len(wanted)


def _fits(part: torch.nn.Module) -> bool:
    return isinstance(part, torch.nn.Linear) and not (
        part.in_features % MULTIPLE or part.out_features % MULTIPLE
    )


def _is_one_of(wanted: set[int], part: torch.nn.Module, _name: str) -> bool:
    return id(part) in wanted


# Pixel statistics that models were made for, by channel: mean and standard deviation.


class PixelStatistics(NamedTuple):
    """What images are normalised with."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


CLIP = PixelStatistics(
    mean=(0.48145466, 0.4578275, 0.40821073), std=(0.26862954, 0.26130258, 0.27577711)
)
"""CLIP's, which the image processors of BridgeTower and FLAVA use too."""

IMAGENET = PixelStatistics(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
"""ImageNet-1K's, which recipes of image classification use."""
