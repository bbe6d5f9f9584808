"""FLOPs of one sample, counted operation by operation without computing anything."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from feedrate.config.settings import TrainSettings
from feedrate.devices.host import GIB


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


# What weights, gradients and optimizer states take at least, before anything is tried.

STATES = 2
"""Adam keeps two numbers a parameter."""
OF_THE_WEIGHTS = (
    *("adamw_torch", "adamw_torch_loop", "adamw_torch_foreach", "adamw_torch_fused"),
    "adamw_apex_fused",
)
"""Adam whose states are of the weights' precision."""
STATE_BYTES = {"adamw_torch_8bit": 1, "adamw_8bit": 1, "adamw_bnb_8bit": 1, "adamw_torch_4bit": 0.5}
"""Adam whose states take so many bytes each."""


class DoesNotFitError(MemoryError):
    """The model's own numbers are more than the device holds, whatever the batch."""


def state_gib(model: torch.nn.Module, train: TrainSettings, count: int) -> float:
    """Weights, gradients and optimizer states of one of `count` devices, GiB; no activations.

    With `cpu_offload` they lie in the host's memory, its share for one device. A lower bound:
    buffers of the exchange, cached half-precision weights, fragments and the whole layers that
    sharding gathers come on top, and so do the states of an optimizer that is not known here. The
    model may stand on the meta device.
    """
    weight = 2 if train.precision.endswith("_full") else 4
    known = weight if train.optimizer in OF_THE_WEIGHTS else 0
    state = STATES * STATE_BYTES.get(train.optimizer, known)
    frozen = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    total = weight * frozen + (2 * weight + state) * trained
    return total / (count if train.strategy == "fsdp" else 1) / GIB


def check_fits(model: torch.nn.Module, train: TrainSettings, count: int, has_gib: float) -> None:
    """Raise DoesNotFitError where the states alone are more than what a device has for them."""
    needed = state_gib(model, train, count)
    if needed > has_gib:
        has = "for which the host has" if train.cpu_offload else "which has"
        raise DoesNotFitError(
            f"out of memory before the first batch: weights, gradients and optimizer states take "
            f"{needed:.3g} GiB a device, {has} {has_gib:.3g}"
        )
