"""The memory of a training step, counted without a device and without weights.

A forward and a backward pass run on torch's meta device, and every storage is followed until its
release. Its size is fixed or belongs to the samples, so one trace gives every batch. What DDP, FSDP
and AdamW add is from the sources of torch 2.13. docs/memory.md has more, and the errors.
"""

import tempfile
import weakref
from bisect import bisect_right
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest.mock import patch

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor
from torch.autograd.graph import _engine_run_backward
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from feedrate.config.devices import Device
from feedrate.config.settings import LoaderSettings, ModelSettings, Settings, TrainSettings
from feedrate.config.values import Strict
from feedrate.data.manifest import SAMPLES, TOKENIZER
from feedrate.data.prepare import train_tokenizer
from feedrate.devices.base import AUTOCAST, adapter_class
from feedrate.devices.host import GIB
from feedrate.models import flops
from feedrate.models.build import Built, build_bare
from feedrate.models.layers import cast

ERROR = 0.1  # of a peak, workspaces and fragmentation; the largest error found is 5.6%
CONTEXT_GIB = 1.0  # an accelerator's context and libraries, outside the allocator: an estimate
ROWS = 1009  # of a trace, a prime: storages whose bytes are a multiple are of the samples
LARGEST = 2**16  # no larger batch is looked for
Numbers = npt.NDArray[np.float64]


class Needs(Strict, kw_only=True):
    """The memory that a training step needs on each device. `activations_gib` is live at the end
    of the forward pass, with cast weights. `left_gib`: what the peak of tensors and CONTEXT_GIB of
    accelerators leave. It `fits` if that is ERROR of the peak or more; `close`: within ERROR."""

    parameters: int
    weights_gib: float
    gradients_gib: float
    states_gib: float
    activations_gib: float
    peak_gib: float
    memory_gib: float | None
    left_gib: float | None
    verdict: Literal["fits", "close", "does not fit", "unknown"]
    largest_batch: int | None


class Trace(NamedTuple):
    """A model's live tensors after each operation of a step."""

    built: Built
    fixed_bytes: Numbers
    sample_bytes: Numbers
    gradient_shares: Numbers  # finished so far
    forward: int  # operations of the forward pass

    def live_gib(self, batch: int) -> Numbers:
        """Live tensors after each operation, GiB, without weights, gradients and states."""
        return (self.fixed_bytes + batch * self.sample_bytes) / GIB


def needs(settings: Settings, device: Device) -> Needs:
    """The memory of a training step on each of the `count` accelerators of a device."""
    train, trace, room = settings.train, trace_of(settings, device), room_gib(settings, device)
    parts = flops.states_gib(trace.built.model, train, device.count)
    peak = peak_gib(settings, device, train.batch_size)
    verdict: Any = "close"
    if room is None:
        verdict = "unknown"
    elif peak * (1 + ERROR) <= room:
        verdict = "fits"
    elif peak * (1 - ERROR) > room:
        verdict = "does not fit"
    return Needs(
        parameters=trace.built.parameters,
        weights_gib=parts.weights,
        gradients_gib=parts.gradients,
        states_gib=parts.states,
        activations_gib=float(trace.live_gib(train.batch_size)[trace.forward - 1]),
        peak_gib=peak,
        memory_gib=train.memory_gib or device.memory_gib,
        left_gib=None if room is None else room - peak,
        verdict=verdict,
        largest_batch=largest_batch(settings, device),
    )


def largest_batch(settings: Settings, device: Device) -> int | None:
    """The largest batch that is predicted to fit; None if the memory is not known."""
    room = room_gib(settings, device)
    if room is None:
        return None
    return bisect_right(range(1, LARGEST), room, key=lambda b: peak_gib(settings, device, b))


def room_gib(settings: Settings, device: Device) -> float | None:
    """Memory for tensors on each device, GiB."""
    memory_gib = settings.train.memory_gib or device.memory_gib
    if memory_gib is None or device.kind == "cpu":
        return memory_gib
    return memory_gib - CONTEXT_GIB


def peak_gib(settings: Settings, device: Device, batch: int) -> float:
    """Peak of the tensors on each device, GiB. Before the first step, DDP makes buckets of the size
    of the gradients, which are views of them with `ddp_bucket_view` (torch's reducer.cpp)."""
    train, trace = settings.train, trace_of(settings, device)
    parts = flops.states_gib(trace.built.model, train, device.count)
    weights, gradients, states = (0.0, 0.0, 0.0) if train.cpu_offload else parts
    base_gib, gradient_shares = weights + states, trace.gradient_shares
    has_buckets = device.count > 1 and train.strategy == "ddp"
    if has_buckets and not train.ddp_bucket_view:
        base_gib += gradients
    if train.gradient_accumulation > 1 or (has_buckets and train.ddp_bucket_view):
        gradient_shares = np.ones_like(gradient_shares)
    step_gib = float((trace.live_gib(batch) + gradient_shares * gradients).max())
    update_gib = gradients
    foreach = (
        ["adamw_torch_foreach"] if device.kind == "cpu" else ["adamw_torch_foreach", "adamw_torch"]
    )
    if adapter_class(device.kind).optimizer(settings) in foreach:
        update_gib += gradients  # the square roots of all second moments (torch/optim/adam.py)
    if train.strategy == "fsdp":
        layers_gib, root_gib = gathered_gib(trace.built, train)
        step_gib += layers_gib
        update_gib = max(update_gib, gradients + root_gib)
    return base_gib + max(step_gib, update_gib)


def gathered_gib(built: Built, train: TrainSettings) -> tuple[float, float]:
    """What FSDP holds besides shards, GiB: while layers run, the parts outside the layers, two
    layers, a gathered copy, and a layer's gradients before and after their cast; and at the end,
    weights and gradients of the parts outside the layers."""
    parts = [part for part in built.model.modules() if isinstance(part, built.layers)]
    sizes = [sum(p.numel() for p in part.parameters()) for part in parts]
    layer, root = max(sizes, default=0), built.parameters - sum(sizes)
    full = train.precision.endswith("_full")
    weight = 2 if full or train.precision in AUTOCAST else 4
    reduced = weight if full else 4
    running = weight * (root + 3 * layer) + (weight + reduced) * layer
    return running / GIB, (2 * weight + reduced) * root / GIB


def trace_of(settings: Settings, device: Device) -> Trace:
    """The trace of a model's step on a kind of device; equal work is traced once."""
    model = msgspec.structs.replace(settings.model, checkpoint=None, revision=None)
    precision = settings.train.precision
    autocast = precision in AUTOCAST
    in_half = autocast and settings.train.strategy == "fsdp"
    # Half precisions take the same memory; tf32 takes the memory of fp32.
    equal = "bf16" if autocast else "bf16_full" if precision.endswith("_full") else "fp32"
    return _trace(model, settings.loader.max_tokens, equal, in_half, device.kind == "cpu")


@cache
def _trace(model: ModelSettings, tokens: int, precision: Any, in_half: bool, cpu: bool) -> Trace:
    """`in_half`: layers are gathered in half precision."""
    loader = LoaderSettings(max_tokens=tokens)
    with tempfile.TemporaryDirectory(prefix="feedrate-memory-") as folder:
        # What builders read of prepared data: a tokenizer, and a row with a class.
        prepared = Path(folder)
        train_tokenizer(["a caption"], prepared / TOKENIZER)
        table = pa.table({"split": ["train"], loader.label: ["a class"]})
        pq.write_table(table, prepared / SAMPLES)
        built = build_bare(model, loader, prepared)
    half = getattr(torch, AUTOCAST[precision]) if precision in AUTOCAST else None
    cast(built.model.to("meta"), TrainSettings(precision=precision)).train()
    if in_half:
        built.model.to(half)
    live = follow(built, tokens, flops.AsOnDevice(half, cpu=cpu))
    fixed, of_samples, gradients = np.array(live.moments, dtype=float).T
    trained = sum(p.numel() for p in built.model.parameters() if p.requires_grad)
    return Trace(built, fixed, of_samples / ROWS, gradients / trained, live.forward)


def follow(built: Built, tokens: int, arithmetic: flops.AsOnDevice) -> "Live":
    """Follow the storages of a forward and a backward pass of full samples."""
    live = Live(built.model)
    for parameter in built.model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(live.take)
    fused = patch.object(functional, "scaled_dot_product_attention", flops.attend)
    with torch.device("meta"), flops.NoValues() as no_values, fused, live:
        no_values.model = built.model
        batch = flops.empty_batch(built, tokens, ROWS)
        with arithmetic:
            arithmetic.casts = {}
            loss = built.model(**batch, return_loss=True)["loss"]
            arithmetic.casts = None
            live.forward = len(live.moments)
            # loss.backward() would leave these modes, and recomputed layers need them.
            _engine_run_backward((loss,), (torch.ones_like(loss),), False, False, (), True, True)
    return live


class Live(flops.Operations):
    """Sums the bytes of live storages, except a model's, after every operation."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.moments: list[tuple[int, int, int]] = []
        """After each operation: fixed bytes, bytes of samples, elements of finished gradients."""
        self.forward = self._finished = 0
        self._bytes = [0, 0]
        tensors = (*model.parameters(), *model.buffers())
        self._storages: dict[int, Any] = {t.untyped_storage()._cdata: None for t in tensors}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = self.result(func, args, kwargs or {})
        for value in tree_leaves(result):
            if isinstance(value, Tensor):
                self._add(value.untyped_storage())
        self.moments.append((self._bytes[0], self._bytes[1], self._finished))
        return result

    def take(self, parameter: Tensor) -> None:
        """Count the gradient of a parameter as finished, and release it."""
        self._finished += parameter.numel()
        parameter.grad = None

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._storages:
            return
        of_samples = size % ROWS == 0

        def forget(_: Any) -> None:
            self._bytes[of_samples] -= size
            del self._storages[key]

        self._storages[key] = weakref.ref(storage, forget)
        self._bytes[of_samples] += size
