"""The Trainer of a job: stock or Gaudi's, with the meter around what it does."""

import importlib.util
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.optim import AdamW
from transformers import TrainerCallback

from feedrate.config.settings import TrainSettings
from feedrate.config.spec import RunSpec
from feedrate.devices.base import (
    COMPILE_MODES,
    Adapter,
    DeviceError,
    UnsupportedError,
    adapter_class,
)
from feedrate.jobs.meter import Meter
from feedrate.jobs.strategy import ShardingTrainer, sharding
from feedrate.loading.dataset import EpochOrder, PairDataset, collate
from feedrate.loading.path import HELD_BATCHES, LoadingPath, open_path
from feedrate.loading.pixels import Finish
from feedrate.models.layers import cast, give_shapes, use_float8

ADAM: dict[str, dict[str, bool]] = {
    # Without these arguments torch decides (on CUDA: all tensors at once).
    "adamw_torch_loop": {"foreach": False, "fused": False},
    "adamw_torch_foreach": {"foreach": True},
}
"""Optimizers that the Trainer has no name for: AdamW one tensor after the other, or all at once."""
FP16_EPSILON = 1e-4
"""Adam's epsilon where its states are fp16: the usual 1e-8 is zero there, and gives NaN."""
TORCHAO_OPTIMIZERS = ("adamw_torch_4bit", "adamw_torch_8bit")
"""Optimizers of torchao, by the Trainer's names."""


def make_trainer(
    spec: RunSpec,
    adapter: Adapter,
    folder: Path,
    meter: Meter | None,
    model: Any,
    dataset: PairDataset,
    layers: tuple[type[Any], ...] = (),
) -> Any:
    """The Trainer that writes into `folder`; with `meter` None it measures nothing.

    `layers` are the units that a sharded model is cut into. Raises DeviceError where the Trainer's
    world is not the job's: each rank would train alone.
    """
    train, common = spec.settings.train, shared_arguments(spec, folder)
    arguments = adapter.training_arguments(common, spec.settings, spec.protocol.warmup_steps)
    if arguments.world_size != spec.count:
        raise DeviceError(
            f"the Trainer sees {arguments.world_size} processes, the job has {spec.count}; its "
            "launcher must tell each its rank"
        )
    kind: Any = type("MeteredTrainer", (MeteredTrainer, adapter.trainer_class()), {})
    kind.meter, kind.plugin = meter, sharding(spec, layers)
    held = HELD_BATCHES + train.gradient_accumulation
    kind.path = open_path(adapter, spec.settings.loader, held_batches=held)
    kind.finish, kind.numbered = staticmethod(dataset.finish), bool(dataset.augmentation)
    kind.scalars = give_shapes(model) if kind.plugin else []
    trainer = kind(
        model=model,
        args=arguments,
        train_dataset=dataset,
        data_collator=collate,
        callbacks=[MeterCallback(meter)] if meter else None,
        **optimizer_arguments(train),
    )
    adapter.hold_fp32()  # what the libraries have set by now
    if train.ddp_bucket_view:  # the one setting of DDP that no argument names
        trainer.accelerator.ddp_handler.gradient_as_bucket_view = True
    return trainer


def shared_arguments(spec: RunSpec, folder: Path) -> dict[str, Any]:
    """Arguments that TrainingArguments of transformers 4.55 and 5.x and Gaudi's all take."""
    loader, train, protocol = spec.settings.loader, spec.settings.train, spec.protocol
    return {
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
        "logging_steps": train.logging_steps,
        # The filter hides a loss that is not a number, and waits for the device at every step.
        "logging_nan_inf_filter": False,
        "save_strategy": "steps" if protocol.save_checkpoints else "no",
        "save_steps": max(1, protocol.steps // 2),
        "save_total_limit": 2,
        "report_to": ["tensorboard"],
        "disable_tqdm": True,
        **further_arguments(spec),
    }


def further_arguments(spec: RunSpec) -> dict[str, Any]:
    """Arguments from the settings that only some kinds of device have."""
    train, loader = spec.settings.train, spec.settings.loader
    arguments: dict[str, Any] = {}
    if train.precision == "fp16":
        arguments["fp16"] = True
    if train.precision == "fp16_full":
        arguments["adam_epsilon"] = FP16_EPSILON
    if train.execution != "eager":
        mode = COMPILE_MODES[train.execution]
        arguments |= {"torch_compile": True, "torch_compile_mode": mode}
    if train.ddp_bucket_mb is not None:
        arguments["ddp_bucket_cap_mb"] = train.ddp_bucket_mb
    if train.ddp_static_graph:
        arguments["ddp_static_graph"] = True
    if loader.non_blocking:
        arguments["accelerator_config"] = {"non_blocking": True}
    return arguments


def optimizer_arguments(train: TrainSettings) -> dict[str, Any]:
    """Arguments of Trainer for the optimizers that it has no name for."""
    if train.optimizer not in ADAM:
        return {}
    epsilon = FP16_EPSILON if train.precision == "fp16_full" else 1e-8
    options = {"lr": train.learning_rate, "betas": (0.9, 0.999), "eps": epsilon}
    return {"optimizer_cls_and_kwargs": (AdamW, {**options, **ADAM[train.optimizer]})}


def check_packages(spec: RunSpec) -> None:
    """Raise UnsupportedError where torchao is needed and not installed."""
    train = spec.settings.train
    needs = {
        f"train.optimizer: {train.optimizer}": train.optimizer in TORCHAO_OPTIMIZERS,
        "train.precision: fp8": casts_to_fp8(spec),
    }
    for setting, needed in needs.items():
        if needed and importlib.util.find_spec("torchao") is None:
            raise UnsupportedError(
                f"{setting} needs the package torchao beside torch, and it is not installed here"
            )


def casts_to_fp8(spec: RunSpec) -> bool:
    """Whether torchao converts the layers to fp8; on some kinds the Trainer does it."""
    return spec.settings.train.precision == "fp8" and adapter_class(spec.kind).fp8_by_torchao


def cast_for_training(
    model: torch.nn.Module, spec: RunSpec, layers: tuple[type[torch.nn.Module], ...]
) -> torch.nn.Module:
    """The model with its weights, and so its gradients and states, in half precision if asked, or
    with the multiplications of its `layers` in fp8."""
    if casts_to_fp8(spec):
        use_float8(model, layers)
    return cast(model, spec.settings.train)


class MeteredTrainer(ShardingTrainer):
    """Mixin over Trainer and GaudiTrainer; with `meter` None it adds loading and sharding alone."""

    meter: Meter | None = None
    path: LoadingPath
    finish: Finish
    numbered: bool
    """Whether the dataset must know a sample's epoch."""

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """The batches of one optimizer step: all waiting for data happens in here."""
        if self.meter is None:
            return super().get_batch_samples(*args, **kwargs)  # type: ignore[misc]
        self.meter.begin_fetch()
        fetched = super().get_batch_samples(*args, **kwargs)  # type: ignore[misc]
        self.meter.end_fetch(fetched[0])
        return fetched

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Forward and backward of one micro-step; the loss is divided by the accumulation."""
        loss = super().training_step(*args, **kwargs)  # type: ignore[misc]
        if self.meter is not None:
            self.meter.add_loss(loss)
        return loss

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> Any:
        with self.meter.paused() if self.meter else nullcontext():
            return super()._save_checkpoint(*args, **kwargs)  # type: ignore[misc]

    def get_train_dataloader(self) -> Any:
        """The Trainer's loader, on the run's loading path."""
        if self.path.skips:
            self.args.ignore_data_skip = True  # type: ignore[attr-defined]
        return self.path.adopt(super().get_train_dataloader(), self._done)  # type: ignore[misc]

    def _done(self, batches: int) -> int:
        """Of an epoch's batches, those that were trained on: none, except in a resumed one."""
        trainer: Any = self
        accumulation = trainer.args.gradient_accumulation_steps
        return int(trainer.state.global_step % -(-batches // accumulation)) * accumulation

    def _get_train_sampler(self, train_dataset: Any = None) -> EpochOrder:
        """An order that follows from the seed alone, whatever the library's version."""
        trainer: Any = self
        dataset = trainer.train_dataset if train_dataset is None else train_dataset
        arguments, a_step = trainer.args, 1
        if arguments.dataloader_drop_last:  # the Trainer drops batches, and shortens a last step
            a_step = arguments.per_device_train_batch_size * arguments.world_size
            a_step *= arguments.gradient_accumulation_steps
        return EpochOrder(len(dataset), arguments.data_seed, numbered=self.numbered, a_step=a_step)

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The batch on the device, where the rest of its pixels' work is done."""
        return self.finish(super()._prepare_inputs(inputs))  # type: ignore[misc]

    def get_test_dataloader(self, *args: Any, **kwargs: Any) -> Any:
        """The Trainer's loader of all rows: it applies drop_last, meant for training, here too."""
        arguments: Any = self.args  # type: ignore[attr-defined]
        asked, arguments.dataloader_drop_last = arguments.dataloader_drop_last, False
        try:
            loader = super().get_test_dataloader(*args, **kwargs)  # type: ignore[misc]
        finally:
            arguments.dataloader_drop_last = asked
        return self.path.adopt(loader)


class MeterCallback(TrainerCallback):
    """Tells the meter where steps end."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """The loop begins."""
        self._meter.begin(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """An optimizer step has ended; logging and saving come after."""
        self._meter.end_step(state.global_step)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """The loader's rows are used up."""
        self._meter.end_epoch()
