"""One rank's job of the task `inference`, from the spec to the last event."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch
from transformers import set_seed

from feedrate.config.spec import RunSpec, inference_faults
from feedrate.devices.base import Adapter, UnsupportedError, adapter, check_count, check_model
from feedrate.devices.launch import rank_from_environment
from feedrate.devices.placement import Placement
from feedrate.jobs.ceilings import EndlessBatches
from feedrate.jobs.events import EventLog
from feedrate.jobs.opening import (
    Options,
    check_rows,
    limit_memory,
    make_dataset,
    write_data,
    write_model,
    write_start,
)
from feedrate.loading.dataset import PairDataset, collate, read_split, tokenise
from feedrate.loading.registry import check_decode, open_path
from feedrate.models.build import Built, Head, build_head
from feedrate.models.layers import cast

# What each forward pass is asked: a batch that lies ready on the device, or files and captions.

Request = dict[str, torch.Tensor]
"""pixel_values (batch, 3, px, px), input_ids and attention_mask (batch, max_tokens), on the
device."""
Requests = Callable[[], Request]
"""Gives the next one; what it takes is part of a pass's time."""

READY = 4
"""Batches that lie ready on the device, taken in turn."""


def make_requests(
    spec: RunSpec, device: Adapter, built: Built, dataset: PairDataset, *, seed: int
) -> Requests:
    """The requests of one rank, as `inference.preprocessing` says; the same for the same seed."""
    prepare = Preparation(spec, device, built, dataset, seed)
    if spec.settings.inference.preprocessing == "in":
        return prepare
    ready = [prepare() for _ in range(READY)]
    device.synchronize()

    def take() -> Request:
        ready.append(ready.pop(0))
        return ready[-1]

    return take


class Preparation:
    """From JPEG files and captions to a batch on the device, all of it done when it is called."""

    def __init__(
        self, spec: RunSpec, device: Adapter, built: Built, dataset: PairDataset, seed: int
    ) -> None:
        self._device, self._dataset = device.device, dataset
        self._tokenizer, self._max_tokens = built.tokenizer, spec.settings.loader.max_tokens
        self._dtype = next(built.model.parameters()).dtype
        self._texts = read_split(dataset.prepared, dataset.split, built.column)[1]
        rows = EndlessBatches(len(dataset), spec.settings.train.batch_size, seed)
        self._rows = iter(rows)

    def __call__(self) -> Request:
        """The next rows: decoded, tokenised, copied, and finished where they are to be used."""
        rows = next(self._rows)
        texts = [self._texts[row] for row in rows]
        tokens, mask = tokenise(self._tokenizer, texts, self._max_tokens)
        batch = self._pixels(rows) | {"input_ids": tokens, "attention_mask": mask}
        placed = {name: value.to(self._device) for name, value in batch.items()}
        finished = self._dataset.finish(placed)
        return finished | {"pixel_values": finished["pixel_values"].to(self._dtype)}

    def _pixels(self, rows: list[int]) -> dict[str, torch.Tensor]:
        dataset = self._dataset
        fetch = dataset.__getitems__
        batch = collate(fetch(rows) if fetch else [dataset[row] for row in rows])
        return {"pixel_values": batch["pixel_values"]}


# Forward passes, one after the other, each timed until its answer is on the host.


@dataclass(frozen=True)
class Timed:
    """One pass."""

    took_s: float
    prepared_s: float
    """Of it, until the batch was handed to the model."""
    finite: bool
    """Whether the answer is made of finite numbers alone."""


def time_passes(
    spec: RunSpec, device: Adapter, log: EventLog, model: Any, head: Head, requests: Requests
) -> None:
    """Write a `step` event for each pass, and the `window` of those after the warm-up.

    The window's time is the sum of its passes: what lies between them (events are written, answers
    looked at) is told as `paused_s`.
    """
    protocol, size = spec.protocol, spec.settings.train.batch_size
    timed: list[Timed] = []
    device.synchronize()
    device.reset_peak()
    origin_s = opened_s = perf_counter()
    for number in range(1, protocol.steps + 1):
        if number == protocol.warmup_steps + 1:
            opened_s = perf_counter()
        one = _time_pass(device, model, head, requests, spec.settings.train.precision)
        now_gib, peak_gib = device.memory()
        log.write(
            "step",
            step=number,
            t_s=perf_counter() - origin_s,
            step_s=one.took_s,
            data_wait_s=one.prepared_s,
            samples=size,
            loss=None,
            finite=one.finite,
            memory_gib=now_gib,
            peak_memory_gib=peak_gib,
            warmup=number <= protocol.warmup_steps,
        )
        timed.append(one)
    inside = timed[protocol.warmup_steps :]
    wall_s = sum(one.took_s for one in inside)
    log.write(
        "window",
        first_step=protocol.warmup_steps + 1,
        last_step=protocol.steps,
        steps=len(inside),
        samples=len(inside) * size,
        wall_s=wall_s,
        data_wait_s=sum(one.prepared_s for one in inside),
        paused_s=perf_counter() - opened_s - wall_s,
        memory_gib=now_gib,
        peak_memory_gib=peak_gib,
        allocator_retries=device.allocator_retries(),
    )


@torch.inference_mode()
def _time_pass(
    device: Adapter, model: Any, head: Head, requests: Requests, precision: str
) -> Timed:
    start_s = perf_counter()
    batch = requests()
    prepared_s = perf_counter() - start_s
    with device.autocast(precision):
        outputs: Mapping[str, torch.Tensor] = model(**batch, **head.arguments)
    answers = [outputs[name].to("cpu") for name in head.answers]
    device.synchronize()  # what the answer does not need is work of the pass too
    took_s = perf_counter() - start_s
    finite = all(bool(answer.isfinite().all()) for answer in answers)
    return Timed(took_s, prepared_s, finite)


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

    As `feedrate.jobs.train.run_job`, whose place it takes; raises ConfigError, DataError,
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
