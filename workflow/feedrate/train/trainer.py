"""The Trainer of a job: stock or Gaudi's, with the meter around what it does."""

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from feedrate.config.settings import RunSpec
from feedrate.data.loading.finish import Finish
from feedrate.data.loading.order import EpochOrder
from feedrate.data.loading.pairs import PairDataset
from feedrate.data.loading.path import HELD_BATCHES, LoadingPath
from feedrate.data.loading.registry import open_path
from feedrate.devices.base import Adapter, DeviceError
from feedrate.models.layers import give_shapes
from feedrate.train.arguments import (
    further_arguments,
    optimizer_arguments,
    trainer_optimizer,
)
from feedrate.train.meter import Meter
from feedrate.train.strategy import ShardingTrainer, sharding


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
