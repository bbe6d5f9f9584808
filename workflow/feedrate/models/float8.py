"""Matrix multiplications of a model's layers in 8-bit floating point, by torchao."""

from functools import partial
from typing import Any

import torch

MULTIPLE = 16
"""Sides of a matrix that the fp8 kernels take are multiples of this."""

Kinds = tuple[type[torch.nn.Module], ...]


def use_float8(model: torch.nn.Module, layers: Kinds, **options: Any) -> int:
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
