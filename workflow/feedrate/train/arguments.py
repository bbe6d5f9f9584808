"""Settings of training that PyTorch has and Gaudi has not: precisions, compilation, optimizers."""

import importlib.util
from typing import TYPE_CHECKING, Any

from feedrate.config.settings import RunSpec, TrainSettings
from feedrate.devices.base import COMPILE_MODES, UnsupportedError, refuse_cuda_only

if TYPE_CHECKING:
    import torch

ADAM: dict[str, dict[str, bool]] = {
    # torch itself decides (on CUDA: all tensors at once), unless it is told.
    "adamw_torch_loop": {"foreach": False, "fused": False},
    "adamw_torch_foreach": {"foreach": True},
}
"""Optimizers beyond the Trainer's own names: AdamW one tensor after the other, or all at once."""

FP16_EPSILON = 1e-4
"""Adam's epsilon where its states are fp16: the usual 1e-8 is zero there, and gives NaN."""

TORCHAO_OPTIMIZERS = ("adamw_torch_4bit", "adamw_torch_8bit")
"""Those of the Trainer's names that are torchao's."""


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
    if spec.kind == "cpu" and train.precision == "fp8":
        raise UnsupportedError("train.precision: fp8 is for cuda and hpu devices, and not for cpu")
    return arguments


def check_packages(spec: RunSpec) -> None:
    """Raise UnsupportedError where a package is missing that is installed beside torch by hand."""
    train = spec.settings.train
    wanted = {
        f"train.optimizer: {train.optimizer}": train.optimizer in TORCHAO_OPTIMIZERS,
        "train.precision: fp8": train.precision == "fp8" and spec.kind == "cuda",
    }
    for setting, needed in wanted.items():
        if needed and importlib.util.find_spec("torchao") is None:
            raise UnsupportedError(
                f"{setting} needs the package torchao beside torch, and it is not installed here"
            )


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


def cast_for_training(
    model: "torch.nn.Module", spec: RunSpec, layers: "tuple[type[torch.nn.Module], ...]"
) -> "torch.nn.Module":
    """The model with its weights, and so its gradients and states, in half precision if asked, or
    with the multiplications of its `layers` in fp8 (Gaudi's software does that itself)."""
    from feedrate.models.float8 import use_float8
    from feedrate.models.layers import cast

    if spec.settings.train.precision == "fp8" and spec.kind == "cuda":
        use_float8(model, layers)
    return cast(model, spec.settings.train)
