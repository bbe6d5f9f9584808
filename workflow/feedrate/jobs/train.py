"""The training job of one rank: train, evaluate, measure the ceilings."""

from pathlib import Path
from typing import Any

import numpy as np
import transformers

from feedrate.config.spec import RunSpec
from feedrate.core.paths import MODEL_NAME, TRAINER_NAME
from feedrate.devices.base import Adapter
from feedrate.devices.host import memory_gib
from feedrate.devices.placement import Placement
from feedrate.jobs import events
from feedrate.jobs.ceilings import measure_ceilings
from feedrate.jobs.events import EventLog
from feedrate.jobs.job_setup import (
    Options,
    limit_memory,
    make_dataset,
    open_device,
    write_data,
    write_model,
)
from feedrate.jobs.meter import Meter
from feedrate.jobs.scores import known_classes, ranks
from feedrate.jobs.strategy import check_strategy, describe, shared_by
from feedrate.jobs.trainer import cast_for_training, check_packages, make_trainer
from feedrate.loading.dataset import PairDataset
from feedrate.loading.workers import check_workers
from feedrate.models.build import Built, build, build_bare
from feedrate.models.flops import check_fits

SPLITS = {"validation": "eval", "test": "predict"}
"""The splits that are evaluated, and the prefix of their metrics."""


def run_job(
    spec: RunSpec,
    prepared: Path,
    run: Path,
    log: EventLog,
    placement: Placement,
    options: Options,
) -> None:
    """Train, evaluate and measure as `spec` says; events go to `log`, files under `run`.

    `prepared` is the dataset's folder; this rank runs at `placement`. Raises ConfigError,
    DataError, DeviceError, ModelError or UnsupportedError for what cannot be done.
    """
    device = open_device(spec, prepared, log, placement)
    check_workers(spec.settings.loader, placement.cores_of_rank(device.local_ranks))
    check_strategy(spec)
    check_packages(spec)
    check_memory(spec, device, prepared)
    limit_memory(spec)
    transformers.set_seed(spec.seed)
    built = build(spec.settings.model, spec.settings.loader, prepared)
    cast_for_training(built.model, spec, built.layers)
    dataset = make_dataset(spec, prepared, built, "train")
    write_model(log, spec, built)
    meter = Meter(device, log, spec.protocol.steps, spec.protocol.warmup_steps)
    folder, measured = run / TRAINER_NAME, meter if options.measured else None
    trainer = make_trainer(spec, device, folder, measured, built.model, dataset, built.layers)
    write_data(log, spec, built, dataset, trainer.path)
    train(trainer, log, resume=options.resume)
    # Asked of the wrapped model after training, since wrapping happens in `train`.
    ran = describe(trainer.model_wrapped, shared_by(spec), built.layers)
    log.write(events.Strategy(rank=log.rank, fp32=device.fp32(), **ran))
    if spec.protocol.save_checkpoints or options.keep_weights:
        save_model(trainer, built, folder / MODEL_NAME)
    if spec.protocol.evaluate:
        for split in SPLITS:
            evaluate(trainer, log, split, make_dataset(spec, prepared, built, split), built)
    if options.measured:
        measure_ceilings(spec, device, log, trainer, dataset)


def check_memory(spec: RunSpec, device: Adapter, prepared: Path) -> None:
    """Raise DoesNotFitError before a model is made that fits with no batch size.

    A checkpoint is not checked: its size is known only once it is loaded.
    """
    settings = spec.settings
    on_host = settings.train.cpu_offload
    has_gib = memory_gib() / device.local_ranks if on_host else device.capacity_gib()
    capacity_gib = settings.train.memory_gib or has_gib
    if capacity_gib is None or settings.model.checkpoint is not None:
        return
    model = build_bare(settings.model, settings.loader, prepared).model
    check_fits(model, settings.train, spec.count, capacity_gib)


def train(trainer: Any, log: EventLog, *, resume: bool) -> None:
    """Train to the last step, from the newest checkpoint if `resume` and there is one."""
    checkpoint = newest_checkpoint(Path(trainer.args.output_dir)) if resume else None
    metrics = trainer.train(resume_from_checkpoint=checkpoint).metrics
    trainer.save_metrics("train", metrics)
    trainer.save_state()
    if log.rank == 0:
        library = trainer_library(type(trainer))
        log.write(events.Trainer(rank=log.rank, library=library, metrics=metrics))


def newest_checkpoint(folder: Path) -> str | None:
    """The complete checkpoint of the highest step; None where there is none.

    The Trainer writes `trainer_state.json` last.
    """
    complete = [path.parent for path in folder.glob("checkpoint-*/trainer_state.json")]
    return str(max(complete, key=lambda path: int(path.name.split("-")[1]))) if complete else None


def trainer_library(trainer: type[Any]) -> str:
    """Name and version of the package that provides the Trainer."""
    if any(base.__module__.startswith("optimum.habana") for base in trainer.__mro__):
        from optimum.habana import __version__

        return f"optimum-habana {__version__}"
    return f"transformers {transformers.__version__}"


def save_model(trainer: Any, built: Built, folder: Path) -> None:
    """Save weights (safetensors), configuration and tokenizer, as `model.checkpoint` reads them."""
    trainer.save_model(str(folder))
    if trainer.is_world_process_zero():
        built.tokenizer.save_pretrained(folder)


def evaluate(trainer: Any, log: EventLog, split: str, dataset: PairDataset, built: Built) -> None:
    """Run the model over a split; write `<split>_results.json` and an `evaluation` event.

    Every rank takes part; rank 0 writes.
    """
    prefix, ignored = SPLITS[split], list(built.other_outputs)
    output = trainer.predict(dataset, ignore_keys=ignored, metric_key_prefix=prefix)
    score = {"retrieval": retrieval, "accuracy": accuracy}[built.scores]
    scores = {f"{prefix}_{name}": value for name, value in score(output, dataset).items()}
    metrics = {**output.metrics, f"{prefix}_samples": len(dataset), **scores}
    trainer.log(dict(metrics))
    trainer.save_metrics(split, metrics)
    if log.rank == 0:
        log.write(events.Evaluation(rank=log.rank, split=split, metrics=metrics))


def retrieval(output: Any, dataset: PairDataset) -> dict[str, float]:
    """Recall of text and image embeddings, in both directions."""
    text, image = output.predictions
    groups = np.unique(np.array(dataset.images), return_inverse=True)[1]
    return {
        "image_to_text_recall_at_1": float((ranks(image, text, groups, groups) == 0).mean()),
        "text_to_image_recall_at_1": float((ranks(text, image, groups, groups) == 0).mean()),
    }


def accuracy(output: Any, dataset: PairDataset) -> dict[str, float]:
    """Share of rows whose class has the largest logit, of the rows whose class was trained on."""
    classes = dataset.input_ids[:, 0].numpy()
    known = classes >= 0
    if not known.any():
        return {"known_classes_share": 0.0}
    hits = known_classes(output.predictions, classes)
    return {"accuracy": float(hits.mean()), "known_classes_share": float(known.mean())}
