"""How the ranks of a job share their work: what is asked for, and what is really run.

The stock Trainer runs DistributedDataParallel on CPUs where sharding was asked for, and shards only
the root where it knows no layers, without a word. So sharding is set up here, the same on all kinds
of device, and what came of it is told.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

from feedrate.config.spec import RunSpec
from feedrate.devices.base import UnsupportedError
from feedrate.models.layers import count_checkpointed


def check_strategy(spec: RunSpec) -> None:
    """Raise UnsupportedError for a strategy that this device or count does not have."""
    for sentence in _conflicts(spec):
        raise UnsupportedError(sentence)


def _conflicts(spec: RunSpec) -> Iterator[str]:
    train = spec.settings.train
    limited = train.limit_all_gathers is not None
    if train.strategy != "fsdp":
        asked = {"limit_all_gathers": limited, "cpu_offload": train.cpu_offload}
        for name in (name for name, there in asked.items() if there):
            yield f"train.{name}: it is a choice of fsdp, not of {train.strategy}"
        return
    if spec.kind == "hpu":
        yield "train.strategy: fsdp is not available yet on hpu; use ddp"
    if spec.count == 1 and not train.cpu_offload:
        yield (
            "train.strategy: fsdp needs several devices, or train.cpu_offload: true; the job has 1"
        )
    if limited and spec.kind == "cpu":
        yield (
            "train.limit_all_gathers: PyTorch's first FSDP, whose choice it is, does not run on a "
            "cpu; leave it null"
        )
    if limited and train.cpu_offload:
        yield (
            "train.cpu_offload: it is done by PyTorch's second FSDP, and train.limit_all_gathers "
            "asks for the first; leave that null"
        )


def sharding(spec: RunSpec, layers: tuple[type[Any], ...]) -> Any:
    """accelerate's plugin that shards the model by its layers; None for another strategy.

    `limit_all_gathers` is a choice of PyTorch's first FSDP alone: without it the second is taken.
    """
    check_strategy(spec)
    if spec.settings.train.strategy != "fsdp":
        return None
    from accelerate.utils import FullyShardedDataParallelPlugin

    limit = spec.settings.train.limit_all_gathers
    version: dict[str, Any] = {"fsdp_version": 2, "reshard_after_forward": True}
    if spec.settings.train.cpu_offload:
        # Page-locked memory is for copies to a GPU; torch has none without one.
        version["cpu_offload"] = CPUOffloadPolicy(pin_memory=spec.kind == "cuda")
    if limit is not None:
        version = {"fsdp_version": 1, "limit_all_gathers": limit, "use_orig_params": True}
    return FullyShardedDataParallelPlugin(
        **version,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=[kind.__name__ for kind in layers],
        state_dict_type="SHARDED_STATE_DICT",  # of checkpoints: whole ones cannot be resumed from
        cpu_ram_efficient_loading=False,
    )


class ShardingTrainer:
    """Mixin over Trainer that shards the model as `plugin` says; with None it changes nothing."""

    plugin: Any = None
    scalars: Sequence[str] = ()
    """Parameters that had no dimension before they were sharded."""

    def _build_accelerator_args(self, **kwargs: Any) -> dict[str, Any]:
        if self.plugin is not None:
            kwargs["fsdp_plugin"] = self.plugin
        made: dict[str, Any] = super()._build_accelerator_args(**kwargs)  # type: ignore[misc]
        return made

    def create_accelerator_and_postprocess(self) -> None:
        """Make the accelerator shard on CPUs too, where it would take DDP in silence."""
        super().create_accelerator_and_postprocess()  # type: ignore[misc]
        if self.plugin is None:
            return
        from accelerate.utils import DistributedType

        trainer: Any = self
        state = trainer.accelerator.state
        state.distributed_type = DistributedType.FSDP
        state.fsdp_plugin = self.plugin
        if trainer.accelerator.mixed_precision in ("fp16", "bf16"):
            self.plugin.set_mixed_precision(trainer.accelerator.mixed_precision)
        trainer.is_fsdp_enabled = True

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save whole weights, the same file whatever the strategy; all ranks take part."""
        trainer: Any = self
        if self.plugin is None:
            super().save_model(output_dir, _internal_call)  # type: ignore[misc]
            return
        weights = whole_weights(trainer.model)
        weights |= {name: weights[name].reshape(()) for name in self.scalars if name in weights}
        if trainer.args.should_save:
            trainer._save(output_dir or trainer.args.output_dir, state_dict=weights)
        trainer.accelerator.wait_for_everyone()


def whole_weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """All weights on the host of rank 0, empty on others; every rank must call it."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights: dict[str, Any] = get_model_state_dict(model, options=options)
    return weights


def _offloads(module: torch.nn.Module) -> bool:
    """Whether a module's weights rest on the host between its uses."""
    if not isinstance(module, FSDPModule):
        return False
    group = module._get_fsdp_state()._fsdp_param_group
    return group is not None and isinstance(group.offload_policy, CPUOffloadPolicy)


def _ddp(module: DistributedDataParallel) -> Mapping[str, Any]:
    """The settings that a wrapped model exchanges gradients by, by our names of them."""
    return {
        "ddp_bucket_mb": module.bucket_bytes_cap / 2**20,
        "ddp_static_graph": module.static_graph,
        "ddp_bucket_view": module.gradient_as_bucket_view,
    }


def shared_by(spec: RunSpec) -> str:
    """How gradients are exchanged where no module of the model does it."""
    if spec.count == 1:
        return "alone"
    # Of optimum-habana's own, only the argument tells: it reduces after the backward pass.
    return "fast_ddp" if spec.settings.train.strategy == "fast_ddp" else "none"


def describe(
    model: torch.nn.Module, strategy: str, layers: tuple[type[Any], ...]
) -> Mapping[str, Any]:
    """What really runs, from the wrapped model itself: the `strategy` event.

    `strategy` is what the Trainer exchanges gradients by where no module does it (hpu's fast DDP).
    """
    modules = list(model.modules())
    sharded = [m for m in modules if isinstance(m, FSDPModule | FullyShardedDataParallel)]
    if sharded:
        name = "fsdp"
    elif any(isinstance(module, DistributedDataParallel) for module in modules):
        name = "ddp"
    else:
        name = strategy
    inner = [m.module if isinstance(m, FullyShardedDataParallel) else m for m in sharded]
    return {
        "name": name,
        "layers": sum(isinstance(module, layers) for module in modules),
        "sharded_layers": sum(isinstance(module, layers) for module in inner),
        "offloaded_layers": sum(isinstance(m, layers) and _offloads(m) for m in modules),
        "checkpointed_layers": count_checkpointed(model),
        "ddp": next((_ddp(m) for m in modules if isinstance(m, DistributedDataParallel)), None),
    }
