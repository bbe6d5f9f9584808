"""What training and inference share: they open device, data and model, and report what they are."""

import os
import resource
import sys
from pathlib import Path
from typing import Any

import psutil
import torch

from feedrate.config.devices import is_called
from feedrate.config.errors import ConfigError
from feedrate.config.spec import RunSpec
from feedrate.core.files import digest_file
from feedrate.data.manifest import MANIFEST, read_manifest
from feedrate.devices.base import Adapter, DeviceError, adapter, check_settings
from feedrate.devices.host import GIB, host_facts
from feedrate.devices.launch import rank_from_environment, recorded_environment
from feedrate.devices.placement import Placement, cpus_text
from feedrate.jobs import events
from feedrate.jobs.events import EventLog
from feedrate.loading.dataset import PairDataset
from feedrate.loading.path import LoadingPath, distance, open_path
from feedrate.models.build import Built, build_bare
from feedrate.models.flops import count_flops
from feedrate.models.layers import running_attention

RECORDED_INPUTS = "cudagraph_recorded_non_static_inputs"
"""torch's counter, there once a CUDA graph was recorded; the one of skipped graphs lacks some."""
DRAWN_SHARE = 0.9  # of a device's memory for weights that are drawn; the context takes some
HALVES = {torch.bfloat16: "bf16_full", torch.float16: "fp16_full"}


def open_device(
    spec: RunSpec, prepared: Path, log: EventLog, placement: Placement, model_pattern: str = ""
) -> Adapter:
    """This rank's device, reported in the `start` event. Raises DeviceError if it is absent or of
    another model, UnsupportedError and ConfigError if it cannot do what the spec asks."""
    _, world_size, local_rank, local_ranks = rank_from_environment()
    on_node = spec.count // spec.nodes
    if (world_size, local_ranks) != (spec.count, on_node):
        raise DeviceError(
            f"the job asked for {spec.count} processes, {on_node} on each node, and got "
            f"{world_size}, {local_ranks} on this one (launcher: {spec.launcher})"
        )
    device = adapter(spec.kind, local_rank, local_ranks)
    start = events.Start(
        rank=log.rank,
        world_size=world_size,
        pid=os.getpid(),
        device_model=device.device_model(),
        driver=device.driver(),
        device_memory_gib=device.capacity_gib(),
        cores_granted=placement.granted,
        cores=cpus_text(placement.cpus),
        intraop_threads=torch.get_num_threads(),
        environment=recorded_environment(),
        **host_facts(),
    )
    log.write(start)
    model = device.device_model()
    if model_pattern and not is_called(model, model_pattern):
        raise DeviceError(
            f"the job asked for {spec.device} (model_pattern {model_pattern!r}) and got {model!r}"
        )
    check_settings(spec)
    device.check(spec.settings)
    open_path(device, spec.settings.loader)
    check_rows(spec, prepared)
    return device


def check_rows(spec: RunSpec, prepared: Path) -> None:
    """Raise ConfigError if the rows fill no step, or no batch where incomplete steps are kept."""
    rows, train = read_manifest(prepared / MANIFEST).splits["train"].rows, spec.settings.train
    is_dropped = spec.task == "training" and spec.settings.loader.last_batch == "drop"
    micro_steps = train.gradient_accumulation if is_dropped else 1
    step_rows = train.batch_size * micro_steps * spec.count
    if rows < step_rows:
        times = f" x {micro_steps} micro-steps" if micro_steps > 1 else ""
        raise ConfigError(
            f"train.batch_size: {train.batch_size}{times} on {spec.count} rank(s) needs "
            f"{step_rows} training rows, the dataset {spec.dataset} has {rows}"
        )


def limit_memory(spec: RunSpec) -> None:
    """Limit a rank on a CPU to `train.memory_gib` beyond its present address space, as a GPU is.
    Call it when all libraries are loaded: they reserve far more addresses than they use."""
    allowed_gib = spec.settings.train.memory_gib
    if allowed_gib is not None:
        limit = psutil.Process().memory_info().vms + int(allowed_gib * GIB)
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def place_of_weights(spec: RunSpec, device: Adapter, prepared: Path) -> torch.device:
    """Where random weights are drawn: on the rank's device, if its kind draws there and, for a
    model that is then sharded, if all of them fit there. Else on the host."""
    settings, fits = spec.settings, True
    if settings.train.strategy == "fsdp" and settings.model.checkpoint is None:
        bare = build_bare(settings.model, settings.loader, prepared)
        fits = 4 * bare.parameters / GIB <= DRAWN_SHARE * (device.capacity_gib() or 0.0)
    return device.device if device.draws_weights and fits else torch.device("cpu")


def write_model(log: EventLog, built: Built, dataset: PairDataset) -> None:
    """Write the `model` event; rank 0 counts FLOPs of a full text and of one of mean length."""
    mask = dataset.attention_mask
    full, mean = mask.shape[1], round(float(mask.sum()) / len(mask))
    lengths = {full, mean} if log.rank == 0 else set()
    flops = {tokens: count_flops(built, tokens) for tokens in lengths}
    event = events.Model(
        rank=log.rank,
        made_on=built.made_on,
        parameters=built.parameters,
        flops_per_sample=flops.get(full),
        flops_per_real_sample=flops.get(mean),
        attention=running_attention(built.model),  # known once a pass has run, as counting does
    )
    log.write(event)


def write_data(log: EventLog, dataset: PairDataset, path: LoadingPath) -> None:
    """Write the `data` event; rank 0 compares the pixels of `path` with the reference's."""
    pixels = distance(dataset, path)._asdict() if log.rank == 0 else {}
    event = events.Data(
        rank=log.rank,
        digest=digest_file(dataset.prepared / MANIFEST),
        samples=len(dataset),
        decode=path.decode,
        library=path.library,
        form=path.form,
        **{f"pixel_{name}": value for name, value in pixels.items()},
    )
    log.write(event)


def describe_computation(model: torch.nn.Module, mixed: str, fp32: str | None) -> dict[str, Any]:
    """The keys of the `computation` event of every task; `mixed`: "bf16", "fp16" or "fp8" where
    operations run in it by autocast, else "no"; `fp32`: how the device computes fp32."""
    weights = next(p.dtype for p in model.parameters() if p.is_floating_point())
    precision = "tf32" if fp32 == "tf32" else "fp32"
    if mixed == "fp8" or any(type(m).__name__ == "Float8Linear" for m in model.modules()):
        precision = "fp8"
    elif weights in HALVES:
        precision = HALVES[weights]
    elif mixed != "no":
        precision = mixed
    counts = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})  # of torch.compile
    return {
        "precision": precision,
        "compiled_graphs": counts["stats"]["unique_graphs"] if counts else 0,
        "recorded_graphs": RECORDED_INPUTS in counts["inductor"] if counts else None,
    }
