"""The Trainer of a job: stock or Gaudi's, with the meter around what it does."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from feedrate.config.settings import TrainSettings
from feedrate.config.spec import RunSpec
from feedrate.devices.base import (
    COMPILE_MODES,
    Adapter,
    DeviceError,
    UnsupportedError,
    refuse_cuda_only,
)
from feedrate.jobs.meter import Meter
from feedrate.jobs.strategy import ShardingTrainer, sharding
from feedrate.loading.dataset import EpochOrder, PairDataset
from feedrate.loading.path import HELD_BATCHES, LoadingPath
from feedrate.loading.pixels import Finish
from feedrate.loading.registry import open_path
from feedrate.models.layers import give_shapes

# Settings of training that PyTorch has and Gaudi has not: precisions, compilation, optimizers.

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
    from feedrate.models.layers import cast, use_float8

    if spec.settings.train.precision == "fp8" and spec.kind == "cuda":
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
        """Forward and backward of one micro-step; the loss comes divided by the accumulation."""
        loss = super().training_step(*args, **kwargs)  # type: ignore[misc]
        if self.meter is not None:
            self.meter.add_loss(loss)
        return loss

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> Any:
        if self.meter is None:
            return super()._save_checkpoint(*args, **kwargs)  # type: ignore[misc]
        with self.meter.paused():
            return super()._save_checkpoint(*args, **kwargs)  # type: ignore[misc]

    def get_train_dataloader(self) -> Any:
        """The Trainer's loader, on the run's loading path."""
        if self.path.skips:
            self.args.ignore_data_skip = True  # type: ignore[attr-defined]
        return self.path.adopt(super().get_train_dataloader(), self._done)  # type: ignore[misc]

    def _done(self, batches: int) -> int:
        """Of an epoch's batches, those that were trained on: none, but in a resumed one."""
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
        """The batch on the device, where what is left to do to its pixels is done."""
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
        "optim": trainer_optimizer(train),
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


def make_trainer(
    spec: RunSpec,
    adapter: Adapter,
    folder: Path,
    meter: Meter | None,
    *,
    model: Any,
    dataset: PairDataset,
    collate: Any,
    layers: tuple[type[Any], ...] = (),
) -> Any:
    """The Trainer that writes into `folder`; with `meter` None it measures nothing.

    `layers` are the units that a sharded model is cut into.

    Raises DeviceError where the Trainer's world is not the job's: each rank would train alone.
    """
    arguments = adapter.training_arguments(
        shared_arguments(spec, folder), spec.settings, spec.protocol.warmup_steps
    )
    if arguments.world_size != spec.count:
        raise DeviceError(
            f"the Trainer sees {arguments.world_size} processes, the job has {spec.count}; its "
            "launcher must tell each its rank"
        )
    plugin = sharding(spec, layers)
    held = HELD_BATCHES + spec.settings.train.gradient_accumulation
    parts = {
        "meter": meter,
        "path": open_path(adapter, spec.settings.loader, held_batches=held),
        "finish": staticmethod(dataset.finish),
        "numbered": bool(dataset.augmentation),
        "plugin": plugin,
        "scalars": give_shapes(model) if plugin else [],
    }
    kind = type("MeteredTrainer", (MeteredTrainer, adapter.trainer_class()), parts)
    trainer: Any = kind(
        model=model,
        args=arguments,
        train_dataset=dataset,
        data_collator=collate,
        callbacks=[MeterCallback(meter)] if meter else None,
        **optimizer_arguments(spec.settings.train),
    )
    adapter.hold_fp32()  # what the libraries have set by now
    if spec.settings.train.ddp_bucket_view:  # the one setting of DDP that no argument names
        trainer.accelerator.ddp_handler.gradient_as_bucket_view = True
    return trainer
