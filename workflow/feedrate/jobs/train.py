"""The training job of one rank: train, evaluate, measure the ceilings."""

import hashlib
import importlib
import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

from feedrate.config.spec import RunSpec
from feedrate.core.files import digest_value
from feedrate.core.paths import TRAINER_NAME
from feedrate.devices.base import Adapter, adapter_class
from feedrate.devices.host import memory_gib
from feedrate.devices.placement import Placement
from feedrate.jobs import events, job_setup
from feedrate.jobs.evaluation import evaluate
from feedrate.jobs.events import EventLog
from feedrate.jobs.meter import Meter
from feedrate.jobs.rounds import measure_ceilings
from feedrate.jobs.strategy import check_strategy, describe_strategy, shares_weights
from feedrate.jobs.trainer import make_trainer
from feedrate.jobs.worker import Options, note_of
from feedrate.loading.dataset import PairDataset
from feedrate.loading.workers import check_workers
from feedrate.models.build import Built, build, build_bare
from feedrate.models.flops import check_fits
from feedrate.models.layers import cast, use_float8

TENSORBOARD = "tensorboard"  # the integration that writes beside the run and calls nobody
WEIGHTS_SAMPLED = 1024  # numbers of each parameter that ranks are compared by
LONGEST_REPOSITORY = 96  # characters in a repository's name that the hub allows


def run_job(
    spec: RunSpec, prepared: Path, run: Path, log: EventLog, placement: Placement, options: Options
) -> None:
    """Train, evaluate and measure as `spec` says. Raises ConfigError, DataError, DeviceError,
    ModelError or UnsupportedError for an impossible request."""
    settings, protocol = spec.settings, spec.protocol
    device = job_setup.open_device(spec, prepared, log, placement, options.model_pattern)
    check_workers(settings.loader, placement.cores_of_rank(device.local_ranks))
    check_strategy(spec)
    check_memory(spec, device, prepared)
    job_setup.limit_memory(spec)
    built = build_for_training(spec, device, prepared, log.rank)
    dataset = PairDataset(prepared, "train", built, settings.loader, options.store)
    job_setup.write_model(log, built, dataset)
    services = [name for name in options.report_to if name != TENSORBOARD]
    if services and log.rank == 0:
        log.write(events.Note(rank=0, about="report_to", message=", ".join(services)))
    trainer = make_trainer(
        spec,
        device,
        run / TRAINER_NAME,
        Meter(device, log, protocol.steps, protocol.warmup_steps),
        built,
        dataset,
        report_to=options.report_to,
    )
    job_setup.write_data(log, dataset, trainer.path)
    score = partial(evaluate, trainer, log, spec, prepared, built, options)
    if protocol.evaluate and log.rank == 0:
        try:
            score("before")
        except Exception as error:
            # A model that ranks share may not fit on one device, which is no fault of the run.
            note = note_of(error, "evaluation before training", log.rank)
            if not note.out_of_memory:
                raise
            log.write(note)
        device.release()  # memory that the evaluation took does not count as training's
    transformers.set_seed(spec.seed)  # an evaluation may have drawn random numbers
    train(trainer, log)
    write_strategy(log, spec, trainer, device, built.layers)
    if protocol.evaluate:
        score("after")
    if protocol.ceiling_s:
        measure_ceilings(spec, device, log, trainer, dataset)
    if options.push_to:
        push(trainer, log, spec, options.push_to, built.tokenizer)


def write_strategy(
    log: EventLog, spec: RunSpec, trainer: Any, device: Adapter, layers: tuple[type[Any], ...]
) -> None:
    """Write how the model was sharded and computed; a later evaluation may wrap it once more."""
    fp32 = device.fp32()
    strategy = describe_strategy(trainer.model_wrapped, spec, layers)
    log.write(events.Strategy(rank=log.rank, fp32=fp32, **strategy))
    accelerator = trainer.accelerator
    is_fp8 = getattr(accelerator, "fp8_enabled", False)
    mixed = "fp8" if is_fp8 else str(accelerator.mixed_precision)
    computation = job_setup.describe_computation(trainer.model, mixed, fp32)
    computation |= device.replays(trainer)
    computation["optimizer"] = running_optimizer(trainer.optimizer)
    if strategy["name"] != "fsdp":
        computation["weights"] = digest_weights(trainer.model)
    log.write(events.Computation(rank=log.rank, **computation))


def check_memory(spec: RunSpec, device: Adapter, prepared: Path) -> None:
    """Raise DoesNotFitError if the model, unless it is a checkpoint, fits with no batch size."""
    settings, capacity_gib = spec.settings, device.capacity_gib()
    if settings.train.cpu_offload:
        capacity_gib = memory_gib() / device.local_ranks
    capacity_gib = settings.train.memory_gib or capacity_gib
    if capacity_gib is not None and settings.model.checkpoint is None:
        model = build_bare(settings.model, settings.loader, prepared).model
        check_fits(model, settings.train, spec.count, capacity_gib)


def build_for_training(spec: RunSpec, device: Adapter, prepared: Path, rank: int) -> Built:
    """The model in the precision that it trains in. Each rank draws the same weights, or rank 0 for
    all. A model that is then sharded is on the host, as `strategy.sharding` takes it."""
    model, loader, train = spec.settings.model, spec.settings.loader, spec.settings.train
    transformers.set_seed(spec.seed)
    empty = rank > 0 and shares_weights(spec)
    place = "cpu" if empty else job_setup.place_of_weights(spec, device, prepared)
    built = build(model, loader, prepared, on=place, empty=empty)
    cast_for_training(built.model, spec, built.layers)
    if train.strategy == "fsdp":
        built.model.to("cpu")
    device.release()  # the allocator keeps the memory of weights that were cast or moved
    return built


def cast_for_training(
    model: torch.nn.Module, spec: RunSpec, layers: tuple[type[torch.nn.Module], ...]
) -> None:
    """Let the `layers` multiply in fp8, or cast the weights to half precision, if asked."""
    if spec.settings.train.precision == "fp8" and adapter_class(spec.kind).fp8_by_torchao:
        use_float8(model, layers)
    cast(model, spec.settings.train)


def train(trainer: Any, log: EventLog) -> None:
    """Train to the last step."""
    metrics = trainer.train().metrics
    trainer.save_metrics("train", metrics)
    trainer.save_state()
    if log.rank == 0:
        library = f"transformers {transformers.__version__}"
        if any(base.__module__.startswith("optimum.habana") for base in type(trainer).__mro__):
            library = f"optimum-habana {importlib.import_module('optimum.habana').__version__}"
        log.write(events.Trainer(rank=0, library=library, metrics=metrics))


def running_optimizer(optimizer: Any) -> str:
    """The optimizer's class, and `fused`, `foreach` or `loop` if its arguments choose one."""
    while hasattr(optimizer, "optimizer"):  # accelerate's wrapper
        optimizer = optimizer.optimizer
    name, defaults = type(optimizer).__name__, optimizer.defaults
    for argument in ("fused", "foreach"):
        if defaults.get(argument):
            return f"{name} {argument}"
    return f"{name} loop" if defaults.get("foreach") is False else name


def digest_weights(model: torch.nn.Module) -> str:
    """A digest of the first numbers of each trained parameter, which differ without an exchange."""
    trained = (p.detach() for p in model.parameters() if p.requires_grad)
    sampled = torch.cat([p.flatten()[:WEIGHTS_SAMPLED].float() for p in trained]).cpu()
    return hashlib.sha256(sampled.numpy().tobytes()).hexdigest()[:16]


def push(trainer: Any, log: EventLog, spec: RunSpec, repository: str, tokenizer: Any) -> None:
    """Push the model, its tokenizer and the Trainer's card to a private repository of its own. A
    note says where, or why not, which is no fault of the run. The token is in HF_TOKEN only."""
    trainer.processing_class, trainer.args.hub_private_repo = tokenizer, True
    trainer.args.hub_model_id = name = repository_of(repository, spec)
    try:
        trainer.save_model()  # all ranks take part, and may have to wait for each other
        if log.rank == 0:
            trainer.save_model = lambda *_, **__: None
            trainer.push_to_hub(token=os.environ["HF_TOKEN"])
            log.write(events.Note(rank=0, about="push_to_hub", message=f"pushed to {name}"))
    except Exception as error:  # the hub's client raises errors of several libraries
        log.write(note_of(error, "push_to_hub", log.rank))


def repository_of(repository: str, spec: RunSpec) -> str:
    """`me/models-STUDY-DEVICE-CELL` for `me/models`, with the letters that the hub allows."""
    cell = re.sub(r"[^A-Za-z0-9]+", "-", f"{spec.study}-{spec.device}-{spec.cell}")
    name = f"{repository}-{cell}"
    if len(name) <= LONGEST_REPOSITORY:
        return name
    return f"{name[: LONGEST_REPOSITORY - 9]}-{digest_value(cell)[:8]}"
