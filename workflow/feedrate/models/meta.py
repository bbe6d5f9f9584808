"""A device's arithmetic on torch's meta device, where tensors have a size and no memory."""

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from feedrate.models.build import Built
from feedrate.models.flops import one_pair

ATTENTION: Any = functional.scaled_dot_product_attention
"""torch's own, also while `fused_attention` replaces it."""


def empty_batch(built: Built, max_tokens: int, rows: int) -> dict[str, Tensor]:
    """A batch of `rows` full texts (or classes) and images, on the current default device."""
    pair = one_pair(built.image_px, 1 if built.scores == "accuracy" else max_tokens)
    return {name: value.expand(rows, *value.shape[1:]).clone() for name, value in pair.items()}


def attend(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
    """Fused attention as one kernel, as on a GPU; the meta device would choose the steps of the
    eager form. Mask and dropout move and keep next to nothing."""
    fused = torch.ops.aten._scaled_dot_product_efficient_attention
    return fused(query, key, value, None, True)[0]


def fused_attention() -> AbstractContextManager[Any]:
    """In this context torch's modules call `attend`."""
    return patch.object(functional, "scaled_dot_product_attention", attend)


class AsOnDevice(TorchFunctionMode):
    """Autocast to `half`, fused attention and dropout, as on a GPU; the meta device has none.
    On a CPU (`cpu`) dropout is not fused, and autocast leaves the functions of `IN_FP32` alone.

    While `casts` is a dict, it keeps the cast weights, as autocast does in a forward pass.
    """

    IN_HALF = (
        *(functional.linear, functional.conv2d, functional.multi_head_attention_forward),
        *(torch.matmul, torch.bmm, Tensor.matmul, Tensor.__matmul__),
    )
    IN_FP32 = (
        *(functional.layer_norm, functional.softmax, functional.log_softmax, torch.softmax),
        *(functional.cross_entropy, functional.normalize, Tensor.softmax, Tensor.norm),
    )

    def __init__(self, half: torch.dtype | None, *, cpu: bool = False) -> None:
        super().__init__()
        wholes = {} if cpu else dict.fromkeys(self.IN_FP32, torch.float32)
        self.casts: dict[int, Tensor] | None = None
        self._to = dict.fromkeys(self.IN_HALF, half) | wholes if half else {}
        self._fused = not cpu

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is functional.dropout and self._fused and kwargs["training"] and kwargs["p"]:
            return torch.native_dropout(args[0], kwargs["p"], True)[0]
        if function is ATTENTION:
            return attend(*args)
        if to := self._to.get(function):
            args, kwargs = tree_map_only(Tensor, lambda v: self._cast(v, to), (args, kwargs))
        return function(*args, **kwargs)

    def _cast(self, value: Tensor, to: torch.dtype) -> Tensor:
        if not value.is_floating_point():
            return value
        if self.casts is None or not (value.requires_grad and value.is_leaf):
            return value.to(to)
        if id(value) not in self.casts:
            self.casts[id(value)] = value.to(to)
        return self.casts[id(value)]
