"""Settings of training that PyTorch has and Gaudi has not: precisions, compilation, optimizers."""

from typing import Any

from feedrate.config.settings import RunSpec, TrainSettings
from feedrate.devices.base import COMPILE_MODES, UnsupportedError, refuse_cuda_only

ADAM: dict[str, dict[str, bool]] = {
    # torch itself decides (on CUDA: all tensors at once), unless it is told.
    "adamw_torch_loop": {"foreach": False, "fused": False},
    "adamw_torch_foreach": {"foreach": True},
}
"""Optimizers beyond the Trainer's own names: AdamW one tensor after the other, or all at once."""

FP16_EPSILON = 1e-4
"""Adam's epsilon where its states are fp16: the usual 1e-8 is zero there, and gives NaN."""


def further_arguments(spec: RunSpec) -> dict[str, Any]:
    """Arguments for TrainingArguments from the settings that only some kinds of device have.

    Raises UnsupportedError where the device is not of such a kind.
    """
    train, loader = spec.settings.train, spec.settings.loader
    arguments: dict[str, Any] = {}
    if train.precision == "fp16":
        arguments["fp16"] = True
    if train.precision == "fp16_full":
        arguments["adam_epsilon"] = FP16_EPSILON
    if train.execution != "eager":
        arguments |= {
            "torch_compile": True,
            "torch_compile_mode": COMPILE_MODES[train.execution],
        }
    if train.ddp_bucket_mb is not None:
        arguments["ddp_bucket_cap_mb"] = train.ddp_bucket_mb
    if train.ddp_static_graph:
        arguments["ddp_static_graph"] = True
    if loader.non_blocking:
        arguments["accelerator_config"] = {"non_blocking": True}
    if spec.kind == "hpu" and (arguments or train.ddp_bucket_view):
        asked = ", ".join(arguments) or "ddp_bucket_view"
        raise UnsupportedError(
            f"{asked}: on hpu these are settings of `hpu`, as hpu.mode, "
            "hpu.ddp_bucket_cap_mb or hpu.non_blocking_data_copy"
        )
    refuse_cuda_only(spec.kind, train)
    return arguments


def optimizer_arguments(train: TrainSettings) -> dict[str, Any]:
    """Arguments of Trainer for the optimizers that its own names do not reach."""
    if train.optimizer not in ADAM:
        return {}
    from torch.optim import AdamW

    epsilon = FP16_EPSILON if train.precision == "fp16_full" else 1e-8
    options = {"lr": train.learning_rate, "betas": (0.9, 0.999), "eps": epsilon}
    return {"optimizer_cls_and_kwargs": (AdamW, {**options, **ADAM[train.optimizer]})}


def trainer_optimizer(train: TrainSettings) -> str:
    """`optim` of TrainingArguments."""
    return "adamw_torch" if train.optimizer in ADAM else train.optimizer
