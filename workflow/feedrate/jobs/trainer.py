"""The Trainer of a job: stock or Gaudi's, with the meter, the loading path and sharding added."""

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from accelerate.state import PartialState
from accelerate.utils import DistributedType
from torch.optim import AdamW
from transformers import TrainerCallback

from feedrate.config.spec import RunSpec
from feedrate.devices.base import COMPILE_MODES, Adapter, DeviceError
from feedrate.jobs.meter import Meter
from feedrate.jobs.strategy import sharding
from feedrate.loading.dataset import EpochOrder, PairDataset, collate
from feedrate.loading.path import HELD_BATCHES, LoadingPath, open_path
from feedrate.loading.pixels import Finish
from feedrate.models.build import Built
from feedrate.models.layers import give_shapes

ADAM: dict[str, dict[str, bool]] = {
    "adamw_torch_loop": {"foreach": False, "fused": False},
    "adamw_torch_foreach": {"foreach": True},
}
"""Optimizers that the Trainer has no name for: AdamW one tensor at a time, or all at once."""
FP16_EPSILON = 1e-4  # Adam's epsilon for fp16 states: in fp16 the usual 1e-8 is zero, and gives NaN
_TRAINER: Any = object  # Trainer or GaudiTrainer, with which the mixin is combined


def make_trainer(
    spec: RunSpec,
    adapter: Adapter,
    folder: Path,
    meter: Meter | None,
    built: Built,
    dataset: PairDataset,
    report_to: Sequence[str] = (),
) -> Any:
    """The Trainer that writes into `folder`; with `meter` None it measures nothing. Raises
    DeviceError if it sees more or fewer ranks than the job has: each would train by itself."""
    train, loader = spec.settings.train, spec.settings.loader
    arguments = adapter.training_arguments(
        shared_arguments(spec, folder, report_to), spec.settings, spec.protocol.warmup_steps
    )
    if arguments.world_size != spec.count:
        raise DeviceError(
            f"the Trainer sees {arguments.world_size} processes, the job has {spec.count}; its "
            "launcher must give each its rank"
        )
    kind: Any = type("MeteredTrainer", (MeteredTrainer, adapter.trainer_class()), {})
    kind.meter, kind.plugin = meter, sharding(spec, built.layers, built.encoders)
    kind.fill_steps = loader.last_batch == "fill"
    kind.path = open_path(adapter, loader, held_batches=HELD_BATCHES + train.gradient_accumulation)
    # A copy, because it moves its tensors to the device, and `dataset` goes to workers.
    kind.finish = staticmethod(copy.copy(dataset.finish))
    kind.scalars = give_shapes(built.model) if kind.plugin else []
    optimizer = None
    if train.optimizer in ADAM:
        epsilon = FP16_EPSILON if train.precision == "fp16_full" else 1e-8
        optimizer = AdamW, {"lr": train.learning_rate, "eps": epsilon, **ADAM[train.optimizer]}
    trainer = kind(
        model=built.model,
        args=arguments,
        train_dataset=dataset,
        data_collator=collate,
        callbacks=[_MeterCallback(meter)] if meter else [],
        optimizer_cls_and_kwargs=optimizer,
    )
    adapter.hold_fp32(train.precision)  # whatever the libraries have set
    if train.ddp_bucket_view:  # the one setting of DDP that no argument names
        trainer.accelerator.ddp_handler.gradient_as_bucket_view = True
    return trainer


def shared_arguments(spec: RunSpec, folder: Path, report_to: Sequence[str] = ()) -> dict[str, Any]:
    """The arguments that TrainingArguments takes in transformers 4.55 and 5.x and on Gaudi."""
    loader, train, protocol = spec.settings.loader, spec.settings.train, spec.protocol
    arguments = {
        "output_dir": str(folder),
        "max_steps": protocol.steps,
        "per_device_train_batch_size": train.batch_size,
        "per_device_eval_batch_size": train.eval_batch_size or train.batch_size,
        "gradient_accumulation_steps": train.gradient_accumulation,
        "learning_rate": train.learning_rate,
        "warmup_steps": train.learning_rate_warmup_steps,
        "optim": "adamw_torch" if train.optimizer in ADAM else train.optimizer,
        "seed": spec.seed,
        "data_seed": spec.seed,
        "dataloader_num_workers": loader.workers,
        "dataloader_prefetch_factor": loader.prefetch_factor if loader.workers else None,
        "dataloader_persistent_workers": loader.persistent_workers and loader.workers > 0,
        "dataloader_pin_memory": loader.pin_memory,
        "dataloader_drop_last": loader.last_batch == "drop",
        "remove_unused_columns": False,
        # No buffer of these models changes, and by default DDP sends them all in every pass.
        "ddp_broadcast_buffers": False,
        "logging_steps": train.logging_steps,
        # The filter hides a loss that is not a number, and waits for the device at every step.
        "logging_nan_inf_filter": False,
        "save_strategy": "steps" if protocol.save_checkpoints else "no",
        "save_steps": max(1, protocol.steps // 2),
        "save_total_limit": 2,
        "report_to": list(report_to),
        "run_name": f"{spec.study} {spec.device} {spec.cell} rep{spec.repeat}",
        "disable_tqdm": True,
    }
    options = {
        "fp16": train.precision == "fp16",
        "adam_epsilon": FP16_EPSILON if train.precision == "fp16_full" else None,
        "torch_compile": train.execution != "eager",
        "torch_compile_mode": COMPILE_MODES.get(train.execution),
        "ddp_bucket_cap_mb": train.ddp_bucket_mb,
        "ddp_static_graph": train.ddp_static_graph,
        "accelerator_config": {"non_blocking": True} if loader.non_blocking else None,
    }
    # Not every kind of device has these, even as their defaults.
    return arguments | {name: value for name, value in options.items() if value}


class MeteredTrainer(_TRAINER):
    """Mixin that adds the loading path, and the meter and sharding unless they are None."""

    meter: Meter | None = None
    path: LoadingPath
    finish: Finish
    fill_steps: bool  # an epoch's incomplete step is filled
    plugin: Any = None  # of `sharding`
    scalars: Sequence[str] = ()  # the parameters that `give_shapes` has changed

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """The batches of one optimizer step; all waiting for data and copying happens here."""
        if self.meter:
            self.meter.begin_fetch()
        batches, items = super().get_batch_samples(*args, **kwargs)
        if self.meter:
            self.meter.end_fetch(batches)
        return batches, items

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Forward and backward of one micro-step; the loss is divided by the accumulation."""
        loss = super().training_step(*args, **kwargs)
        if self.meter:
            self.meter.add_loss(loss)
        return loss

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> Any:
        with self.meter.paused() if self.meter else nullcontext():
            return super()._save_checkpoint(*args, **kwargs)

    def get_train_dataloader(self) -> Any:
        """The Trainer's loader, on the run's loading path."""
        loader = self.path.wrap(super().get_train_dataloader())
        if self.meter and hasattr(loader, "base_dataloader"):
            inner = loader.base_dataloader  # accelerate and the Trainer look into it: it must stay
            inner.__iter__ = partial(self.meter.waits, inner)
        return loader

    def _get_train_sampler(self, train_dataset: Any = None) -> EpochOrder:
        """An order that depends on the seed only, not on the library's version."""
        dataset = self.train_dataset if train_dataset is None else train_dataset
        args, step_samples = self.args, 1
        if args.dataloader_drop_last or self.fill_steps:
            # By itself, the Trainer drops or fills batches, and shortens a last step.
            step_samples = args.per_device_train_batch_size * args.world_size
            step_samples *= args.gradient_accumulation_steps
        rows, seed, fill = len(dataset), args.data_seed, self.fill_steps
        return EpochOrder(rows, seed, step_samples=step_samples, fill=fill)

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The batch on the device, which finishes its pixels."""
        return self.finish(super()._prepare_inputs(inputs))

    def get_test_dataloader(self, *args: Any, **kwargs: Any) -> Any:
        """The Trainer's loader of all rows: by itself, it would apply drop_last here too."""
        with patch.object(self.args, "dataloader_drop_last", False):
            return self.path.wrap(super().get_test_dataloader(*args, **kwargs))

    def _build_accelerator_args(self, **kwargs: Any) -> Any:
        if self.plugin is not None:
            kwargs["fsdp_plugin"] = self.plugin
        return super()._build_accelerator_args(**kwargs)

    def create_accelerator_and_postprocess(self) -> None:
        """Make the accelerator shard on CPUs too, where it would silently choose DDP."""
        super().create_accelerator_and_postprocess()
        if self.plugin is None:
            return
        state = self.accelerator.state
        state.distributed_type = DistributedType.FSDP
        state.fsdp_plugin = self.plugin
        if state.device.type == "cpu":
            # Else every later view of the state would name MULTI_CPU, and ranks of the first FSDP
            # would clip gradients by the norms of their own shards. It also refuses "cpu:0".
            state.device = torch.device("cpu")
            PartialState._shared_state["distributed_type"] = DistributedType.FSDP
            PartialState._shared_state["device"] = state.device
        self.is_fsdp_enabled = True

    def autocast_smart_context_manager(self, *args: Any, **kwargs: Any) -> Any:
        """Autocast for sharded layers too: accelerate omits it with PyTorch's second FSDP."""
        if self.plugin is not None:
            return self.accelerator.autocast()
        return super().autocast_smart_context_manager(*args, **kwargs)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save whole weights, the same file for every strategy; all ranks take part."""
        if self.plugin is None:
            super().save_model(output_dir, _internal_call)
            return
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

        # Gathered on the host of rank 0, empty on others; every rank must call it. On a CPU nothing
        # moves, and PyTorch's first FSDP would give tensors that it frees.
        to_host = self.accelerator.device.type != "cpu" or self.plugin.fsdp_version == 2
        options = StateDictOptions(full_state_dict=True, cpu_offload=to_host)
        weights: dict[str, Any] = get_model_state_dict(self.model, options=options)
        weights |= {name: weights[name].reshape(()) for name in self.scalars if name in weights}
        if self.args.should_save:
            self._save(output_dir or self.args.output_dir, state_dict=weights)
        # No rank continues before the file is complete.
        self.accelerator.wait_for_everyone()


class _MeterCallback(TrainerCallback):
    """Reports the end of every step to the meter, before the Trainer logs and saves."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._meter.begin()

    def on_step_end(self, _args: Any, state: Any, _control: Any, **parts: Any) -> None:
        scaler = getattr(parts.get("optimizer"), "scaler", None)  # of accelerate, in fp16 alone
        # The public `get_scale` waits for the device.
        self._meter.end_step(state.global_step, getattr(scaler, "_scale", None))

    def on_log(self, *_: Any, **__: Any) -> None:
        # The Trainer has read the loss, so the device has finished all steps.
        self._meter.write_steps(wait=True)

    def on_epoch_end(self, *_: Any, **__: Any) -> None:
        self._meter.end_epoch()
