"""What weights, gradients and optimizer states take at least, before anything is tried."""

import torch

from feedrate.config.settings import TrainSettings
from feedrate.devices.base import GIB

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
