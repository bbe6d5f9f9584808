"""How the ranks of a job share their work: the strategy that is asked for, and the one that runs.

Where sharding is asked for, the stock Trainer silently runs DistributedDataParallel on CPUs, and
shards only the root of a model whose layers it does not know. So sharding is set up here, the same
on all kinds of device, and the wrapped model is read to report the result.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

from feedrate.config.spec import RunSpec
from feedrate.devices.base import UnsupportedError, adapter_class
from feedrate.models.layers import count_checkpointed


def check_strategy(spec: RunSpec) -> None:
    """Raise UnsupportedError for a strategy that this device or count does not have."""
    for sentence in _conflicts(spec):
        raise UnsupportedError(sentence)


def _conflicts(spec: RunSpec) -> Iterator[str]:
    train = spec.settings.train
    limited = train.limit_all_gathers is not None
    if train.strategy != "fsdp":
        for name, asked in {"limit_all_gathers": limited, "cpu_offload": train.cpu_offload}.items():
            if asked:
                yield f"train.{name}: it is a choice of fsdp, not of {train.strategy}"
        return
    if spec.count == 1 and not train.cpu_offload:
        yield (
            "train.strategy: fsdp needs several devices, or train.cpu_offload: true; the job has 1"
        )
    if limited and train.cpu_offload:
        yield (
            "train.cpu_offload: it needs PyTorch's second FSDP, and train.limit_all_gathers asks "
            "for the first; leave that null"
        )


def sharding(spec: RunSpec, layers: tuple[type[Any], ...]) -> Any:
    """accelerate's plugin that shards the model by its layers; None for another strategy.

    PyTorch's second FSDP is used, except for `limit_all_gathers`, which only the first one has.
    """
    check_strategy(spec)
    if spec.settings.train.strategy != "fsdp":
        return None
    from accelerate.utils import FullyShardedDataParallelPlugin

    limit = spec.settings.train.limit_all_gathers
    version: dict[str, Any] = {"fsdp_version": 2, "reshard_after_forward": True}
    if spec.settings.train.cpu_offload:
        # torch has no page-locked memory without an accelerator.
        version["cpu_offload"] = CPUOffloadPolicy(pin_memory=adapter_class(spec.kind).pins_memory)
    if limit is not None:
        version = {"fsdp_version": 1, "limit_all_gathers": limit, "use_orig_params": True}
    return FullyShardedDataParallelPlugin(
        **version,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=[kind.__name__ for kind in layers],
        state_dict_type="SHARDED_STATE_DICT",  # a run cannot resume from whole ones
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
        """Make the accelerator shard on CPUs too, where it would silently choose DDP."""
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
        """Save whole weights, the same file for every strategy; all ranks take part."""
        trainer: Any = self
        if self.plugin is None:
            super().save_model(output_dir, _internal_call)  # type: ignore[misc]
            return
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        # Gathered on the host of rank 0, empty on others; every rank must call it.
        whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights: dict[str, Any] = get_model_state_dict(trainer.model, options=whole)
        weights |= {name: weights[name].reshape(()) for name in self.scalars if name in weights}
        if trainer.args.should_save:
            trainer._save(output_dir or trainer.args.output_dir, state_dict=weights)
        # No rank goes on before the file is complete.
        trainer.accelerator.wait_for_everyone()


def shared_by(spec: RunSpec) -> str:
    """How gradients are exchanged where no module of the model does it."""
    if spec.count == 1:
        return "alone"
    # Only the argument shows optimum-habana's own way: it reduces after the backward pass.
    return "fast_ddp" if spec.settings.train.strategy == "fast_ddp" else "none"


def describe(
    model: torch.nn.Module, strategy: str, layers: tuple[type[Any], ...]
) -> dict[str, Any]:
    """The keys of the `strategy` event, read from the wrapped model.

    `strategy` is its name where no module exchanges the gradients.
    """
    modules = list(model.modules())
    sharded = [m for m in modules if isinstance(m, FSDPModule | FullyShardedDataParallel)]
    ddp = next((m for m in modules if isinstance(m, DistributedDataParallel)), None)
    inner = [m.module if isinstance(m, FullyShardedDataParallel) else m for m in sharded]
    return {
        "name": "fsdp" if sharded else strategy if ddp is None else "ddp",
        "layers": sum(isinstance(module, layers) for module in modules),
        "sharded_layers": sum(isinstance(module, layers) for module in inner),
        "offloaded_layers": sum(isinstance(m, layers) and _is_offloaded(m) for m in modules),
        "checkpointed_layers": count_checkpointed(model),
        "ddp": None
        if ddp is None
        else {
            "ddp_bucket_mb": ddp.bucket_bytes_cap / 2**20,
            "ddp_static_graph": ddp.static_graph,
            "ddp_bucket_view": ddp.gradient_as_bucket_view,
        },
    }


def _is_offloaded(module: torch.nn.Module) -> bool:
    """Whether a module's weights stay on the host between its uses."""
    if not isinstance(module, FSDPModule):
        return False
    group = module._get_fsdp_state()._fsdp_param_group
    return group is not None and isinstance(group.offload_policy, CPUOffloadPolicy)
