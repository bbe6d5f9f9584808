"""How a job's ranks share the model: the strategy that is asked for, and the one that ran.

If asked to shard, the stock Trainer silently runs DistributedDataParallel on CPUs, and shards only
the root of a model whose layers it does not know. So sharding is set up here, for all devices.
"""

from typing import Any

import torch
from accelerate.utils import FullyShardedDataParallelPlugin
from torch.distributed import fsdp
from torch.nn.parallel import DistributedDataParallel

from feedrate.config.settings import TrainSettings
from feedrate.config.spec import RunSpec
from feedrate.devices.base import AUTOCAST, UnsupportedError, adapter_class
from feedrate.models.layers import count_checkpointed


def check_strategy(spec: RunSpec) -> None:
    """Raise UnsupportedError for a strategy that the settings or the number of ranks rule out."""
    train = spec.settings.train
    is_sharded, is_fsdp1 = train.strategy == "fsdp", train.limit_all_gathers is not None
    fault = ""
    if not is_sharded and (is_fsdp1 or train.cpu_offload):
        setting = "limit_all_gathers" if is_fsdp1 else "cpu_offload"
        fault = f"train.{setting}: only strategy fsdp has it, not {train.strategy}; leave it out"
    elif is_sharded and spec.count == 1 and not train.cpu_offload:
        fault = "train.strategy: fsdp needs several devices, or train.cpu_offload: true"
    elif is_sharded and is_fsdp1 and train.cpu_offload:
        fault = "train.cpu_offload: true needs PyTorch's second FSDP: no train.limit_all_gathers"
    if fault:
        raise UnsupportedError(fault)


def sharding(
    spec: RunSpec, layers: tuple[type[Any], ...], encoders: tuple[type[Any], ...] = ()
) -> Any:
    """accelerate's plugin that shards the model by its layers; None for another strategy. It uses
    PyTorch's second FSDP, except for `limit_all_gathers`, which only the first one has. There the
    encoders are units too, as in "Scaling Multimodal … in TorchMultimodal"."""
    train, limit = spec.settings.train, spec.settings.train.limit_all_gathers
    if train.strategy != "fsdp":
        return None
    options: dict[str, Any] = {"fsdp_version": 2, "reshard_after_forward": True}
    if train.cpu_offload:
        pins = adapter_class(spec.kind).pins_memory  # torch does only with an accelerator
        options["cpu_offload"] = fsdp.CPUOffloadPolicy(pin_memory=pins)
    if limit is not None:
        layers += encoders
        options = {"fsdp_version": 1, "limit_all_gathers": limit, "use_orig_params": True}
        options["backward_prefetch"] = "BACKWARD_PRE"  # torch's default; accelerate's is none
    return FullyShardedDataParallelPlugin(
        **options,
        mixed_precision_policy=mixed_precision(train),
        cpu_ram_efficient_loading=shares_weights(spec),
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=[kind.__name__ for kind in layers],
        state_dict_type="SHARDED_STATE_DICT",  # each rank saves its own in a checkpoint
    )


def shares_weights(spec: RunSpec) -> bool:
    """Whether rank 0 gives the others their shards, so that a host holds the weights once.
    PyTorch's first FSDP needs an accelerator for it, and fp8 weights cannot be sent."""
    train = spec.settings.train
    is_possible = train.limit_all_gathers is None and train.precision != "fp8"
    return is_possible and train.strategy == "fsdp" and spec.count > 1


def mixed_precision(train: TrainSettings) -> fsdp.MixedPrecision | fsdp.MixedPrecisionPolicy | None:
    """How sharded layers use half precision; None in fp32, or if the weights themselves are half.
    Gradients are reduced in fp32, as with ddp: sums in bf16 would be rounded to 8 bits, and in fp16
    they would overflow. Outputs are not cast: autocast computes the loss in fp32."""
    if train.precision not in AUTOCAST:
        return None
    kind = fsdp.MixedPrecisionPolicy if train.limit_all_gathers is None else fsdp.MixedPrecision
    half = getattr(torch, AUTOCAST[train.precision])
    return kind(param_dtype=half, reduce_dtype=torch.float32)


def describe_strategy(
    model: torch.nn.Module, spec: RunSpec, layers: tuple[type[Any], ...]
) -> dict[str, Any]:
    """The keys of the `strategy` event, read from the wrapped model."""
    modules = list(model.modules())
    sharded = [m for m in modules if isinstance(m, fsdp.FSDPModule | fsdp.FullyShardedDataParallel)]
    inner = [m.module if isinstance(m, fsdp.FullyShardedDataParallel) else m for m in sharded]
    ddp = next((m for m in modules if isinstance(m, DistributedDataParallel)), None)
    if sharded:
        name = "fsdp"
    elif ddp is not None:
        name = "ddp"
    elif spec.count == 1:
        name = "alone"
    elif spec.settings.train.strategy == "fast_ddp":
        name = "fast_ddp"  # only the setting shows it: it reduces after the backward pass
    else:
        name = "none"
    buckets = ddp and {
        "ddp_bucket_mb": ddp.bucket_bytes_cap / 2**20,
        "ddp_static_graph": ddp.static_graph,
        "ddp_bucket_view": ddp.gradient_as_bucket_view,
    }
    # In which the ranks add gradients: a sharding policy's, else the weights'.
    weights = next(p.dtype for p in model.parameters() if p.requires_grad)
    policies = [
        m._get_fsdp_state()._mp_policy if isinstance(m, fsdp.FSDPModule) else m.mixed_precision
        for m in sharded
    ]
    dtypes = {policy.reduce_dtype or policy.param_dtype or weights for policy in policies}
    dtype_names = sorted(str(dtype).removeprefix("torch.") for dtype in dtypes or {weights})
    return {
        "name": name,
        "layers": sum(isinstance(module, layers) for module in modules),
        "sharded_layers": sum(isinstance(module, layers) for module in inner),
        "offloaded_layers": sum(isinstance(m, layers) and _is_offloaded(m) for m in modules),
        "checkpointed_layers": count_checkpointed(model),
        "reduce_dtype": None if name in ("alone", "none") else ", ".join(dtype_names),
        "ddp": buckets,
    }


def _is_offloaded(module: torch.nn.Module) -> bool:
    """Whether a module's weights stay on the host between its uses."""
    if not isinstance(module, fsdp.FSDPModule):
        return False
    group = module._get_fsdp_state()._fsdp_param_group
    return group is not None and isinstance(group.offload_policy, fsdp.CPUOffloadPolicy)
