"""The computation of a model, read from the model and from torch, not from the settings."""

import sys
from typing import Any

import torch

RECORDED_INPUTS = "cudagraph_recorded_non_static_inputs"
"""torch's counter, which exists once a CUDA graph was recorded. That of skipped graphs misses some:
where a forward pass is skipped, so is its backward pass, uncounted."""


def running_graphs() -> dict[str, Any]:
    """The keys of the `computation` event that torch.compile's counters of this process give."""
    counted = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return {
        "compiled_graphs": counted["stats"]["unique_graphs"] if counted else 0,
        "recorded_graphs": RECORDED_INPUTS in counted["inductor"] if counted else None,
    }


def running_precision(model: torch.nn.Module, mixed: str, single: str | None) -> str:
    """The precision in the words of `train.precision`; `mixed`: "bf16", "fp16" or "fp8" where
    operations run in it by autocast, else "no"; `single`: how the device computes fp32."""
    float8 = any(type(module).__name__ == "Float8Linear" for module in model.modules())
    if float8 or mixed == "fp8":
        return "fp8"
    weights = next(p.dtype for p in model.parameters() if p.is_floating_point())
    halves = {torch.bfloat16: "bf16_full", torch.float16: "fp16_full"}
    unmixed = "tf32" if single == "tf32" else "fp32"
    return halves.get(weights) or (unmixed if mixed == "no" else mixed)
