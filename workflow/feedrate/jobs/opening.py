"""What every job does before its first step: its data opened, and told where and what it is."""

import os
import resource
from dataclasses import dataclass
from pathlib import Path

import torch

from feedrate.config.errors import ConfigError
from feedrate.config.spec import RunSpec
from feedrate.core.files import digest_file
from feedrate.data.manifest import MANIFEST, read_manifest
from feedrate.data.store import store_folder
from feedrate.devices.base import GIB, Adapter, UnsupportedError
from feedrate.devices.host import host_facts
from feedrate.devices.launch import told_environment
from feedrate.devices.placement import Placement, cpus_text
from feedrate.jobs.events import EventLog
from feedrate.loading.dataset import PairDataset, without_chance
from feedrate.loading.path import LoadingPath
from feedrate.loading.registry import distance
from feedrate.models.build import Built


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a job does beyond its spec; none of it is part of the run's identity."""

    resume: bool = False
    keep_weights: bool = False
    """Save the model even where the protocol does not."""
    measured: bool = True
    """Off: no meter and no ceilings, the same training run bare."""


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


def check_rows(spec: RunSpec, prepared: Path) -> None:
    """Raise ConfigError where the training split does not fill one step of all ranks (one batch of
    each, where an epoch's incomplete step is kept)."""
    rows = read_manifest(prepared / MANIFEST).splits["train"].rows
    train = spec.settings.train
    whole = spec.task == "training" and spec.settings.loader.last_batch == "drop"
    micro_steps = train.gradient_accumulation if whole else 1
    needed = train.batch_size * micro_steps * spec.count
    if rows < needed:
        times = f" x {micro_steps} micro-steps" * (micro_steps > 1)
        raise ConfigError(
            f"train.batch_size: {train.batch_size}{times} on {spec.count} rank(s) needs {needed} "
            f"training rows, the dataset {spec.dataset} has {rows}"
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


# A limit on what a rank on a CPU may take, so that running out of memory is real without a GPU.


def limit_memory(spec: RunSpec) -> None:
    """Set the address space to what the process has now and `train.memory_gib` beyond.

    Call it when all libraries are loaded: they reserve far more addresses than they use. Processes
    started later have the limit too. Raises UnsupportedError on another kind than cpu.
    """
    allowed_gib = spec.settings.train.memory_gib
    if allowed_gib is None:
        return
    if spec.kind != "cpu":
        raise UnsupportedError(f"train.memory_gib: a limit for cpu, and this device is {spec.kind}")
    limit = _address_space() + int(allowed_gib * GIB)
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _address_space() -> int:
    """Bytes of addresses that this process has (proc(5): statm)."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()
