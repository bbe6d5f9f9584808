"""One rank's job, from the spec to the last event."""

from pathlib import Path
from typing import Any

import numpy as np
import transformers

from feedrate.config.spec import RunSpec
from feedrate.core.paths import MODEL_NAME, TRAINER_NAME
from feedrate.devices.base import Adapter, adapter, check_count, check_model
from feedrate.devices.host import memory_share_gib
from feedrate.devices.launch import rank_from_environment
from feedrate.devices.placement import Placement
from feedrate.jobs.ceilings import measure_ceilings
from feedrate.jobs.events import EventLog
from feedrate.jobs.meter import Meter
from feedrate.jobs.opening import (
    Options,
    check_rows,
    limit_memory,
    make_dataset,
    write_data,
    write_model,
    write_start,
)
from feedrate.jobs.scores import known_classes, ranks
from feedrate.jobs.strategy import check_strategy, describe, shared_by
from feedrate.jobs.trainer import cast_for_training, check_packages, make_trainer
from feedrate.loading.dataset import PairDataset, collate
from feedrate.loading.registry import check_decode
from feedrate.loading.workers import check_workers
from feedrate.models.build import Built, build, build_bare
from feedrate.models.flops import check_fits

# Evaluation on validation and prediction on test: loss, and retrieval or accuracy.

PREFIXES = {"validation": "eval", "test": "predict"}
"""Split to the prefix of its metrics; the files are named after the split."""


def evaluate(trainer: Any, log: EventLog, split: str, dataset: PairDataset, built: Built) -> None:
    """Run the model over a split; write `<split>_results.json` and an `evaluation` event.

    Every rank takes part; rank 0 writes.
    """
    prefix = PREFIXES[split]
    ignored = list(built.other_outputs)
    output = trainer.predict(dataset, ignore_keys=ignored, metric_key_prefix=prefix)
    score = {"retrieval": retrieval, "accuracy": accuracy}[built.scores]
    scores = {f"{prefix}_{name}": value for name, value in score(output, dataset).items()}
    metrics = {**output.metrics, f"{prefix}_samples": len(dataset), **scores}
    trainer.log(dict(metrics))
    trainer.save_metrics(split, metrics)
    if log.rank == 0:
        log.write("evaluation", split=split, metrics=metrics)


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
    DataError, DeviceError, ModelError or UnsupportedError for what cannot be done;
    anything else that training raises passes through.
    """
    _, world_size, local_rank, local_ranks = rank_from_environment()
    check_count(spec, world_size, local_ranks)
    device = adapter(spec.kind, local_rank, local_ranks)
    write_start(log, device, world_size, placement)
    check_model(spec, device.device_model())
    check_decode(device, spec.settings.loader)
    check_workers(spec.settings.loader, placement.cores_of_rank(local_ranks))
    check_strategy(spec)
    check_packages(spec)
    check_rows(spec, prepared)
    check_memory(spec, device, prepared)
    limit_memory(spec)
    transformers.set_seed(spec.seed)
    built = build(spec.settings.model, spec.settings.loader, prepared)
    cast_for_training(built.model, spec, built.layers)
    dataset = make_dataset(spec, prepared, built, "train")
    write_model(log, spec, built)
    meter = Meter(device, log, spec.protocol.steps, spec.protocol.warmup_steps)
    trainer = make_trainer(
        spec,
        device,
        run / TRAINER_NAME,
        meter if options.measured else None,
        model=built.model,
        dataset=dataset,
        collate=collate,
        layers=built.layers,
    )
    write_data(log, spec, built, prepared, dataset, trainer.path)
    train(trainer, log, resume=options.resume)
    ran = describe(trainer.model_wrapped, shared_by(spec), built.layers)
    log.write("strategy", **ran, fp32=device.fp32())
    weights = run / TRAINER_NAME / MODEL_NAME
    if spec.protocol.save_checkpoints or options.keep_weights:
        save_model(trainer, built, weights)
    if spec.protocol.evaluate:
        for split in PREFIXES:
            rows = make_dataset(spec, prepared, built, split)
            evaluate(trainer, log, split, rows, built)
    if options.measured:
        measure_ceilings(spec, device, log, trainer, dataset)


def check_memory(spec: RunSpec, device: Adapter, prepared: Path) -> None:
    """Raise DoesNotFitError for a model that no batch is small enough for, before it is made.

    A checkpoint's is not: it is loaded before anything else can be said of it.
    """
    settings = spec.settings
    on_host = settings.train.cpu_offload
    has_gib = memory_share_gib(device.local_ranks) if on_host else device.capacity_gib()
    capacity_gib = settings.train.memory_gib or has_gib
    if capacity_gib is None or settings.model.checkpoint is not None:
        return
    model = build_bare(settings.model, settings.loader, prepared).model
    check_fits(model, settings.train, spec.count, capacity_gib)


def train(trainer: Any, log: EventLog, *, resume: bool) -> None:
    """Train to the last step, from the newest checkpoint where `resume` asks and there is one."""
    checkpoint = newest_checkpoint(Path(trainer.args.output_dir)) if resume else None
    metrics = trainer.train(resume_from_checkpoint=checkpoint).metrics
    trainer.save_metrics("train", metrics)
    trainer.save_state()
    if log.rank == 0:
        log.write("trainer", library=library(type(trainer)), metrics=metrics)


def newest_checkpoint(folder: Path) -> str | None:
    """The checkpoint of the highest step that was saved to its end; None where there is none.

    The Trainer writes `trainer_state.json` last.
    """
    whole = [path.parent for path in folder.glob("checkpoint-*/trainer_state.json")]
    return str(max(whole, key=lambda path: int(path.name.split("-")[1]))) if whole else None


def library(trainer: type[Any]) -> str:
    """Name and version of the package that the Trainer comes from."""
    if any(base.__module__.startswith("optimum.habana") for base in trainer.__mro__):
        from optimum.habana import __version__

        return f"optimum-habana {__version__}"
    return f"transformers {transformers.__version__}"


def save_model(trainer: Any, built: Built, folder: Path) -> None:
    """Save the weights (safetensors), configuration and tokenizer: what `checkpoint` can name."""
    trainer.save_model(str(folder))
    if trainer.is_world_process_zero():
        built.tokenizer.save_pretrained(folder)
