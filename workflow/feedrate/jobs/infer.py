"""The inference job of one rank: forward passes, each timed until its answer is on the host."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any
from unittest.mock import patch

import torch
from transformers import set_seed

from feedrate.config.spec import RunSpec, inference_faults
from feedrate.devices.base import Adapter, UnsupportedError
from feedrate.devices.launch import rank_from_environment
from feedrate.devices.placement import Placement
from feedrate.jobs import events, job_setup
from feedrate.jobs.blocks import EndlessBatches
from feedrate.jobs.events import EventLog
from feedrate.jobs.meter import machine_now, window_of
from feedrate.jobs.worker import Options
from feedrate.loading.dataset import PairDataset, collate, read_split, tokenise
from feedrate.loading.path import open_path
from feedrate.models.build import Built, build
from feedrate.models.layers import cast

Requests = Callable[[], dict[str, torch.Tensor]]  # the next one, on the device; timed in a pass
READY = 4  # requests that are prepared beforehand and taken in turn, if preprocessing is not timed
COMPILED = "TORCHINDUCTOR_CACHE_DIR"  # variable: the folder of torch.compile
HEADERS = ("_HEADER_DIR", "_HEADER_LOCK_DIR")  # names in torch of folders that runs share


def run_job(
    spec: RunSpec, prepared: Path, run: Path, log: EventLog, placement: Placement, options: Options
) -> None:
    """Time forward passes as `spec` says. Raises as `train.run_job` does."""
    for fault in inference_faults(spec):
        raise UnsupportedError(fault)
    settings = spec.settings
    device = job_setup.open_device(spec, prepared, log, placement, options.model_pattern)
    job_setup.limit_memory(spec)
    set_seed(spec.seed)
    place = job_setup.place_of_weights(spec, device, prepared)
    head = settings.inference.head
    built = build(settings.model, settings.loader, prepared, head, on=place)
    dataset = PairDataset(prepared, "train", built, settings.loader, options.store)
    job_setup.write_model(log, built, dataset)
    job_setup.write_data(log, dataset, open_path(device, settings.loader))
    model = device.serve(cast(built.model, settings.train), settings)
    device.release()  # the allocator keeps the memory of weights that were drawn in fp32 and cast
    rank, world_size, *_ = rank_from_environment()
    requests = make_requests(spec, device, built, dataset, seed=spec.seed + rank)
    wait_for_ranks(rank, world_size)
    with compiling_anew(run):
        time_passes(spec, device, log, model, built.answers, requests)
    write_computation(log, spec, device, model)


def make_requests(
    spec: RunSpec, device: Adapter, built: Built, dataset: PairDataset, *, seed: int
) -> Requests:
    """The requests of one rank; `inference.preprocessing` says whether they are made in a pass."""
    texts = read_split(dataset.prepared, dataset.split, built.column)[1]
    order = iter(EndlessBatches(len(dataset), spec.settings.train.batch_size, seed))
    dtype = next(built.model.parameters()).dtype

    def prepare() -> dict[str, torch.Tensor]:
        """Decode, tokenise, copy and finish the next rows."""
        rows = next(order)
        captions = [texts[row] for row in rows]
        tokens, mask = tokenise(built.tokenizer, captions, spec.settings.loader.max_tokens)
        fetch = dataset.__getitems__
        pairs = collate(fetch(rows) if fetch else [dataset[row] for row in rows])
        batch = {"pixel_values": pairs["pixel_values"], "input_ids": tokens, "attention_mask": mask}
        finished = dataset.finish({name: t.to(device.device) for name, t in batch.items()})
        return finished | {"pixel_values": finished["pixel_values"].to(dtype)}

    if spec.settings.inference.preprocessing == "in":
        return prepare
    requests = cycle([prepare() for _ in range(READY)])
    device.synchronize()  # their preparation is not part of a pass
    return partial(next, requests)


def write_computation(log: EventLog, spec: RunSpec, device: Adapter, model: Any) -> None:
    """Write how the passes were computed, once torch.compile has seen them all."""
    kind, fp32, mixed = device.device.type, device.fp32(), "no"
    with device.autocast(spec.settings.train.precision):
        if torch.is_autocast_enabled(kind):
            mixed = "bf16" if torch.get_autocast_dtype(kind) == torch.bfloat16 else "fp16"
    log.write(events.Strategy(rank=log.rank, name="none", fp32=fp32))
    facts = job_setup.describe_computation(model, mixed, fp32)
    log.write(events.Computation(rank=log.rank, **facts))


def wait_for_ranks(rank: int, world_size: int) -> None:
    """Let all ranks begin their passes together; they share nothing afterwards."""
    if world_size > 1:
        torch.distributed.init_process_group("gloo", rank=rank, world_size=world_size)
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


@contextmanager
def compiling_anew(run: Path) -> Iterator[None]:
    """Hide from torch.compile what earlier runs compiled, so that each first pass compiles."""
    from torch._inductor import codecache

    with TemporaryDirectory(dir=run) as folder:
        os.environ[COMPILED] = folder
        places: dict[str, Any] = {name: f"{folder}/{name}" for name in HEADERS}
        with patch.multiple(codecache, create=True, **places):  # not every torch has them
            yield


def time_passes(
    spec: RunSpec,
    device: Adapter,
    log: EventLog,
    model: Any,
    answers: Sequence[str],
    requests: Requests,
) -> None:
    """Write a `step` for each pass, and the `window` of timed passes; the rest is `paused_s`."""
    protocol, train = spec.protocol, spec.settings.train
    window_steps: list[events.Step] = []
    device.synchronize()  # earlier work of the device is not part of the first pass
    device.reset_peak()
    origin_s = opened_s = perf_counter()
    for number in range(1, protocol.steps + 1):
        if number == protocol.warmup_steps + 1:
            log.write(machine_now(device, log.rank))
            opened_s = perf_counter()
        start_s = perf_counter()
        with torch.inference_mode():
            batch = requests()
            request_s = perf_counter() - start_s
            with device.autocast(train.precision):
                outputs: Mapping[str, torch.Tensor] = model(**batch)
            host_outputs = [outputs[name].to("cpu") for name in answers]
            device.synchronize()  # work of the pass that the answer does not need counts too
            pass_s = perf_counter() - start_s
            finite = all(bool(output.isfinite().all()) for output in host_outputs)
        memory = device.memory()
        step = events.Step(
            rank=log.rank,
            step=number,
            t_s=perf_counter() - origin_s,
            step_s=pass_s,
            data_wait_s=request_s,
            samples=train.batch_size,
            finite=finite,
            memory_gib=memory.now_gib,
            peak_memory_gib=memory.peak_gib,
            warmup=number <= protocol.warmup_steps,
        )
        log.write(step)
        if not step.warmup:
            window_steps.append(step)
    open_s, wall_s = perf_counter() - opened_s, sum(step.step_s for step in window_steps)
    log.write(window_of(window_steps, wall_s, open_s - wall_s, device))
    log.write(machine_now(device, log.rank))
