"""The training job of one rank: train, evaluate, measure the ceilings."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

from feedrate.config.spec import RunSpec
from feedrate.core.paths import MODEL_NAME, TRAINER_NAME
from feedrate.devices.base import Adapter, UnsupportedError, adapter_class
from feedrate.devices.host import memory_gib
from feedrate.devices.placement import Placement
from feedrate.jobs import events
from feedrate.jobs.ceilings import measure_ceilings
from feedrate.jobs.events import EventLog
from feedrate.jobs.job_setup import (
    limit_memory,
    make_dataset,
    open_device,
    write_data,
    write_model,
)
from feedrate.jobs.meter import Meter
from feedrate.jobs.trainer import check_strategy, make_trainer
from feedrate.jobs.worker import Options
from feedrate.loading.dataset import PairDataset
from feedrate.loading.workers import check_workers
from feedrate.models.build import Built, build, build_bare
from feedrate.models.flops import check_fits
from feedrate.models.layers import cast, count_checkpointed, use_float8

Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]
Hits = NDArray[np.bool_]

SPLITS = {"validation": "eval", "test": "predict"}
"""The splits that are evaluated, and the prefix of their metrics."""
TORCHAO_OPTIMIZERS = ("adamw_torch_4bit", "adamw_torch_8bit")
"""Optimizers of torchao, by the Trainer's names."""
_ROWS = 1024
"""Queries ranked at once, which bounds the memory for their scores."""


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
    # The Trainer wraps the model in `train`, so the strategy is known only now.
    ran = describe_strategy(trainer.model_wrapped, spec, built.layers)
    log.write(events.Strategy(rank=log.rank, fp32=device.fp32(), **ran))
    if spec.protocol.save_checkpoints or options.keep_weights:
        save_model(trainer, built, folder / MODEL_NAME)
    if spec.protocol.evaluate:
        for split in SPLITS:
            evaluate(trainer, log, split, make_dataset(spec, prepared, built, split), built)
    if options.measured:
        measure_ceilings(spec, device, log, trainer, dataset)


def check_memory(spec: RunSpec, device: Adapter, prepared: Path) -> None:
    """Raise DoesNotFitError if the model does not fit with any batch size.

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


def check_packages(spec: RunSpec) -> None:
    """Raise UnsupportedError if torchao is needed and not installed."""
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
    """The model in the precision of the settings: its weights (and so its gradients and states) in
    half precision, or the multiplications of its `layers` in fp8."""
    if casts_to_fp8(spec):
        use_float8(model, layers)
    return cast(model, spec.settings.train)


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
    """The complete checkpoint of the highest step; None if there is none.

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


def describe_strategy(
    model: torch.nn.Module, spec: RunSpec, layers: tuple[type[Any], ...]
) -> dict[str, Any]:
    """The keys of the `strategy` event, read from the wrapped model."""
    modules = list(model.modules())
    sharded = [m for m in modules if isinstance(m, FSDPModule | FullyShardedDataParallel)]
    inner = [m.module if isinstance(m, FullyShardedDataParallel) else m for m in sharded]
    ddp = next((m for m in modules if isinstance(m, DistributedDataParallel)), None)
    if sharded:
        name = "fsdp"
    elif ddp is not None:
        name = "ddp"
    elif spec.count == 1:
        name = "alone"
    else:
        # Only the setting shows optimum-habana's own way: it reduces after the backward pass.
        name = "fast_ddp" if spec.settings.train.strategy == "fast_ddp" else "none"
    return {
        "name": name,
        "layers": sum(isinstance(module, layers) for module in modules),
        "sharded_layers": sum(isinstance(module, layers) for module in inner),
        "offloaded_layers": sum(isinstance(m, layers) and _is_offloaded(m) for m in modules),
        "checkpointed_layers": count_checkpointed(model),
        "ddp": ddp
        and {
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
    """Share of hits among the rows whose class was trained on, and the share of such rows."""
    classes = dataset.input_ids[:, 0].numpy()
    known = classes >= 0
    if not known.any():
        return {"known_classes_share": 0.0}
    hits = known_classes(output.predictions, classes)
    return {"accuracy": float(hits.mean()), "known_classes_share": float(known.mean())}


def ranks(queries: Floats, targets: Floats, of_query: Numbers, of_target: Numbers) -> Numbers:
    """The rank (n,) of each query's nearest right target: how many wrong ones are as near to it.

    `queries` (n, d) and `targets` (m, d) are normalised; a larger dot product is nearer.
    `of_query` (n,) and `of_target` (m,) number groups: the targets of a query's group are right, as
    any caption of an image matches it. A query without a right target has rank m. Ties and values
    that are not numbers count against the model: one that scores all targets alike knows nothing.
    """
    found = np.empty(len(queries), dtype=np.int64)
    for start in range(0, len(queries), _ROWS):
        some = slice(start, start + _ROWS)
        scores = queries[some] @ targets.T
        right = of_query[some, None] == of_target[None, :]
        best = np.where(right, scores, -np.inf).max(axis=1, keepdims=True)
        # Not "at least": a score that is not a number is below nothing, and counts against it.
        found[some] = (~right & ~(scores < best)).sum(axis=1)
    return found


def choice_hits(scores: Floats, labels: Numbers) -> Hits:
    """Whether each row of `scores` (n, choices) is largest at its label (n,), and nowhere else.

    NaN at the label is not the largest.
    """
    rows = np.arange(len(scores))
    below = scores < scores[rows, labels][:, None]
    below[rows, labels] = True
    hits: Hits = below.all(axis=1) & ~np.isnan(scores[rows, labels])
    return hits


def known_classes(logits: Floats, classes: Numbers) -> Hits:
    """Whether a row's class (n,) has the largest of its logits (n, classes).

    Rows are left out whose class was not trained on (< 0).
    """
    known = classes >= 0
    return choice_hits(logits[known], classes[known])
