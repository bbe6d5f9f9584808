"""FLOPs of one sample, counted operation by operation without computing anything."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode


class _NoValues(TorchFunctionMode):
    """Answers "no" where code asks a tensor without values for its truth ("is nothing masked?")."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is torch.Tensor.__bool__ and args[0].is_meta:
            return False
        return function(*args, **(kwargs or {}))


def flops_per_sample(
    make_model: Callable[[], torch.nn.Module], make_sample: Callable[[], Mapping[str, Any]]
) -> float:
    """FLOPs of forward and backward of a batch of one, 2 per multiply-add (FlopCounterMode).

    Both are made on the meta device: no memory is taken and nothing is computed. What depends on
    the batch's size (the contrastive logits) is below 1e-8 of the whole.
    """
    with torch.device("meta"), _NoValues():
        model = make_model().train()
        sample = make_sample()
        with FlopCounterMode(display=False) as counter:
            model(**sample).loss.backward()
    return float(counter.get_total_flops())


def forward_flops(model: torch.nn.Module, sample: Mapping[str, Any]) -> float:
    """FLOPs of a forward pass of a batch of one, 2 per multiply-add.

    The model stays as it is: stand-ins without values take the place of its weights and of the
    tensors in `sample`.
    """
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    empty = {name: torch.empty_like(value, device="meta") for name, value in state.items()}
    inputs = {
        name: value.to("meta") if isinstance(value, torch.Tensor) else value
        for name, value in sample.items()
    }
    counter = FlopCounterMode(display=False)
    with torch.device("meta"), torch.no_grad(), _NoValues(), counter:
        torch.func.functional_call(model, empty, kwargs=inputs)
    return float(counter.get_total_flops())


def one_pair(side_px: int, max_tokens: int) -> dict[str, torch.Tensor]:
    """An image and a full text, as `make_sample` of a model of both."""
    text = torch.ones(1, max_tokens, dtype=torch.long)
    return {
        "pixel_values": torch.empty(1, 3, side_px, side_px),
        "input_ids": text,
        "attention_mask": text,
    }
