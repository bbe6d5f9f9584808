"""One rank's job, from the spec to the last event."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from feedrate.config.load import ConfigError
from feedrate.config.settings import RunSpec
from feedrate.data.loading.distance import distance
from feedrate.data.loading.pairs import PairDataset, collate, without_chance
from feedrate.data.loading.path import LoadingPath
from feedrate.data.loading.registry import check_decode
from feedrate.data.manifest import MANIFEST
from feedrate.data.stored import store_folder
from feedrate.devices.base import Adapter, adapter
from feedrate.devices.binding import Placement
from feedrate.devices.expected import check_count, check_model
from feedrate.devices.host import host_facts, memory_share_gib
from feedrate.devices.launch import rank_from_environment, told_environment
from feedrate.devices.topology import cpus_text
from feedrate.files import digest_file
from feedrate.models.build import Built, build, build_bare
from feedrate.models.memory import check_fits
from feedrate.train.arguments import cast, check_packages
from feedrate.train.ceilings import measure_ceilings
from feedrate.train.evaluation import PREFIXES, evaluate
from feedrate.train.events import EventLog
from feedrate.train.hub import push_model, require_token
from feedrate.train.memory_limit import limit_memory
from feedrate.train.meter import Meter
from feedrate.train.strategy import check_strategy, describe, shared_by
from feedrate.train.trainer import make_trainer

TRAINER_FOLDER = "trainer"
MODEL_FOLDER = "model"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a job does beyond its spec; none of it is part of the run's identity."""

    resume: bool = False
    push_to: str | None = None
    measured: bool = True
    """Off: no meter and no ceilings, the same training run bare."""


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
    DataError, DeviceError, ModelError, PushError or UnsupportedError for what cannot be done;
    anything else that training raises passes through.
    """
    if options.push_to:
        require_token()
    _, world_size, local_rank, local_ranks = rank_from_environment()
    check_count(spec, world_size, local_ranks)
    device = adapter(spec.kind, local_rank, local_ranks)
    write_start(log, device, world_size, placement)
    check_model(spec, device.device_model())
    check_decode(device, spec.settings.loader)
    check_strategy(spec)
    check_packages(spec)
    check_memory(spec, device, prepared)
    limit_memory(spec)
    transformers.set_seed(spec.seed)
    built = build(spec.settings.model, spec.settings.loader, prepared)
    cast(built.model, spec, built.layers)
    dataset = make_dataset(spec, prepared, built, "train")
    check_rows(spec, len(dataset), world_size)
    write_model(log, spec, built)
    meter = Meter(device, log, spec.protocol.steps, spec.protocol.warmup_steps)
    trainer = make_trainer(
        spec,
        device,
        run / TRAINER_FOLDER,
        meter if options.measured else None,
        model=built.model,
        dataset=dataset,
        collate=collate,
        layers=built.layers,
    )
    write_data(log, spec, built, prepared, dataset, trainer.path)
    train(trainer, log, resume=options.resume)
    log.write("strategy", **describe(trainer.model_wrapped, shared_by(spec), built.layers))
    weights = run / TRAINER_FOLDER / MODEL_FOLDER
    if spec.protocol.save_checkpoints or options.push_to:
        save_model(trainer, built, weights)
    if spec.protocol.evaluate:
        for split in PREFIXES:
            rows = make_dataset(spec, prepared, built, split)
            evaluate(trainer, log, split, rows, built)
    if options.measured:
        measure_ceilings(spec, device, log, trainer, dataset)
    if options.push_to and log.rank == 0:
        push_model(weights, options.push_to, f"{spec.study}/{spec.device}/{spec.cell}")


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


def make_dataset(spec: RunSpec, prepared: Path, built: Built, split: str) -> PairDataset:
    """One split, as the model wants it."""
    return PairDataset(
        prepared,
        split,
        built.tokenizer,
        max_tokens=spec.settings.loader.max_tokens,
        image_px=built.image_px,
        mean=built.mean,
        std=built.std,
        loader=spec.settings.loader if split == "train" else without_chance(spec.settings.loader),
        column=built.column,
        seed=spec.seed,
        store=store_folder(spec.settings, prepared),
    )


def check_rows(spec: RunSpec, rows: int, world_size: int) -> None:
    """Raise ConfigError where the training split does not fill one batch of every rank."""
    needed = spec.settings.train.batch_size * world_size
    if rows < needed:
        raise ConfigError(
            f"train.batch_size: {spec.settings.train.batch_size} on {world_size} rank(s) needs "
            f"{needed} training rows, the dataset {spec.dataset} has {rows}"
        )


def write_start(log: EventLog, device: Adapter, world_size: int, placement: Placement) -> None:
    """The `start` event: where and with what this rank runs."""
    log.write(
        "start",
        world_size=world_size,
        pid=os.getpid(),
        device_model=device.device_model(),
        driver=device.driver(),
        cores_granted=placement.granted,
        cores=cpus_text(placement.cpus),
        intraop_threads=torch.get_num_threads(),
        environment=told_environment(),
        **host_facts(),
    )


def write_model(log: EventLog, spec: RunSpec, built: Built) -> None:
    """The `model` event; only rank 0 counts FLOPs."""
    log.write(
        "model",
        parameters=built.parameters,
        flops_per_sample=built.count_flops() if log.rank == 0 else None,
        attention=built.attention,
        precision=spec.settings.train.precision,
    )


def write_data(
    log: EventLog,
    spec: RunSpec,
    built: Built,
    prepared: Path,
    dataset: PairDataset,
    path: LoadingPath,
) -> None:
    """The `data` event; `decode` is told by the path that makes all loaders of the run.

    Rank 0 tells how far its pixels are from the reference's.
    """
    off = distance(dataset, path) if log.rank == 0 else None
    log.write(
        "data",
        digest=digest_file(prepared / MANIFEST),
        samples=len(dataset),
        decode=path.decode,
        pixel_mean_abs_diff=off.mean_abs_diff if off else None,
        pixel_psnr_db=off.psnr_db if off else None,
        image_px=built.image_px,
        max_tokens=spec.settings.loader.max_tokens,
    )


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
