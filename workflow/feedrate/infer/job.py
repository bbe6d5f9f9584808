"""One rank's job of the task `inference`, from the spec to the last event."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from transformers import set_seed

from feedrate.config.inference import inference_faults
from feedrate.config.settings import RunSpec
from feedrate.data.loading.registry import check_decode, open_path
from feedrate.devices.base import UnsupportedError, adapter
from feedrate.devices.binding import Placement
from feedrate.devices.expected import check_count, check_model
from feedrate.devices.launch import rank_from_environment
from feedrate.infer.passes import time_passes
from feedrate.infer.requests import make_requests
from feedrate.models.build import build_head
from feedrate.models.layers import cast
from feedrate.train.events import EventLog
from feedrate.train.memory_limit import limit_memory
from feedrate.train.opening import (
    Options,
    check_rows,
    make_dataset,
    write_data,
    write_model,
    write_start,
)

COMPILED = "TORCHINDUCTOR_CACHE_DIR"
"""Environment variable: where torch.compile keeps its work."""
HEADERS = ("_HEADER_DIR", "_HEADER_LOCK_DIR")
"""Where its inductor keeps compiled C++ headers, outside that folder on purpose."""


def run_job(
    spec: RunSpec,
    prepared: Path,
    run: Path,
    log: EventLog,
    placement: Placement,
    options: Options,  # noqa: ARG001
) -> None:
    """Time forward passes as `spec` says; events go to `log`, and nothing is kept in `run`.

    As `feedrate.train.job.run_job`, whose place it takes; raises ConfigError, DataError,
    DeviceError, ModelError or UnsupportedError for what cannot be done.
    """
    for fault in inference_faults(spec):
        raise UnsupportedError(fault)
    settings = spec.settings
    rank, world_size, local_rank, local_ranks = rank_from_environment()
    check_count(spec, world_size, local_ranks)
    device = adapter(spec.kind, local_rank, local_ranks)
    write_start(log, device, world_size, placement)
    check_model(spec, device.device_model())
    check_decode(device, settings.loader)
    check_rows(spec, prepared)
    limit_memory(spec)
    set_seed(spec.seed)
    head_name = settings.inference.head
    built, head = build_head(settings.model, settings.loader, prepared, head_name)
    dataset = make_dataset(spec, prepared, built, "train")
    write_model(log, spec, built)
    write_data(log, spec, built, prepared, dataset, open_path(device, settings.loader))
    model = device.serve(cast(built.model, settings.train), settings)
    requests = make_requests(spec, device, built, dataset, seed=spec.seed + rank)
    wait_for_ranks(rank, world_size)
    with compiling_anew(run):
        time_passes(spec, device, log, model, head, requests)


@contextmanager
def compiling_anew(run: Path) -> Iterator[None]:
    """Let torch.compile find nothing that an earlier run compiled: each first pass is a first one.

    What it compiles lies in `run` meanwhile, its C++ headers too, which have a place of their own
    for all runs of a machine.
    """
    from torch._inductor import codecache

    with TemporaryDirectory(dir=run) as folder:
        os.environ[COMPILED] = folder
        before = {name: getattr(codecache, name) for name in HEADERS if hasattr(codecache, name)}
        for name in before:
            setattr(codecache, name, str(Path(folder) / name))
        try:
            yield
        finally:
            for name, place in before.items():
                setattr(codecache, name, place)


def wait_for_ranks(rank: int, world_size: int) -> None:
    """Return when all ranks are here: their passes are to be timed side by side.

    They meet as their launcher told them, and share nothing afterwards.
    """
    if world_size == 1:
        return
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
