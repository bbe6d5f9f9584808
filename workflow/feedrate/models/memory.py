"""The memory of a training step, counted without a device and without weights.

A forward and a backward pass run on torch's meta device, and every storage is followed from the
operation that makes it to its release. Its size is fixed or belongs to the samples, so one trace
gives every batch size. To these come, from the sources of torch 2.13:

- DistributedDataParallel: buckets as large as the gradients, unless these are views of them.
- FSDP: weights, gradients and states are shared out. Each device also holds the parts outside the
  layers, the layer that runs, the next one and its gathered copy, and the gradients of one layer
  before and after their cast for the exchange.
- The optimizer: what AdamW computes aside while it updates (all parameters at once, or one).

torch's own MemTracker follows tensors in the same way, but on the tensors' own device. A build of
torch for CPUs has no autocast, dropout or attention of GPUs, not even for fake tensors.
Compiled steps and fp8 are counted as eager steps in bf16. Kernels' workspaces and fragmentation are
left out; docs/memory.md has the error.
"""

import tempfile
import weakref
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor
from torch.autograd.graph import _engine_run_backward
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from feedrate.config.devices import Device
from feedrate.config.settings import LoaderSettings, ModelSettings, Settings, TrainSettings
from feedrate.config.values import Strict
from feedrate.data.manifest import SAMPLES, TOKENIZER
from feedrate.data.prepare import train_tokenizer
from feedrate.devices.base import AUTOCAST, adapter_class
from feedrate.devices.host import GIB
from feedrate.models.build import Built, build_bare
from feedrate.models.flops import NoValues, states_gib
from feedrate.models.layers import cast
from feedrate.models.meta import AsOnDevice, Chosen, empty_batch, fused_attention

ERROR = 0.1
"""Largest error of a predicted peak against the resident memory of a CPU (docs/memory.md)."""
CONTEXT_GIB = 1.0
"""What an accelerator's context and libraries take beside tensors, GiB: an estimate."""
ROWS = 1009
"""The batch of a trace. It is prime: a storage whose bytes are a multiple of it is of the samples."""
LARGEST = 2**16
"""No larger batch is looked for."""

Numbers = npt.NDArray[np.float64]
Verdict = Literal["fits", "close", "does not fit", "unknown"]


class Needs(Strict, kw_only=True):
    """What a training step needs on each device, GiB.

    `activations_gib` is live at the end of the forward pass, besides weights and states; cast weights are
    part of it. `peak_gib` counts tensors, as `peak_memory_gib` of a run does. The verdict adds
    CONTEXT_GIB on accelerators: `close` is within ERROR of the device's memory.
    """

    parameters: int
    weights_gib: float
    gradients_gib: float
    states_gib: float
    activations_gib: float
    peak_gib: float
    memory_gib: float | None
    verdict: Verdict
    largest_batch: int | None
    """Of a device whose memory is known; 0: none fits."""


class Trace(NamedTuple):
    """A model's tensors after each operation of a forward and a backward pass."""

    built: Built
    fixed: Numbers
    """Live bytes that do not depend on the batch."""
    each: Numbers
    """Live bytes of each sample."""
    done: Numbers
    """Share of the gradients that are complete."""
    forward: int
    """Operations of the forward pass."""

    def live_gib(self, batch: int) -> Numbers:
        """Live tensors after each operation, GiB, without weights, gradients and states."""
        found: Numbers = (self.fixed + batch * self.each) / GIB
        return found


def needs(settings: Settings, device: Device) -> Needs:
    """What a training step takes on each of a device's `count`."""
    train, found = settings.train, trace_of(settings, device.kind)
    batch, memory_gib = train.batch_size, train.memory_gib or device.memory_gib
    parts = states_gib(found.built.model, train, device.count)
    peak = peak_gib(settings, device, batch)
    verdict: Verdict = "unknown"
    if memory_gib is not None:
        room = memory_gib - _context_gib(device)
        verdict = "fits" if peak * (1 + ERROR) <= room else "close"
        verdict = "does not fit" if peak * (1 - ERROR) > room else verdict
    return Needs(
        parameters=found.built.parameters,
        weights_gib=parts.weights,
        gradients_gib=parts.gradients,
        states_gib=parts.states,
        activations_gib=float(found.live_gib(batch)[found.forward - 1]),
        peak_gib=peak,
        memory_gib=memory_gib,
        verdict=verdict,
        largest_batch=largest_batch(settings, device),
    )


def largest_batch(settings: Settings, device: Device) -> int | None:
    """The largest batch that is expected to fit; 0 if none does, None if the device's memory is not
    known. The batch is doubled until it does not fit, then bisected."""
    memory_gib = settings.train.memory_gib or device.memory_gib
    if memory_gib is None:
        return None
    room, fits, fails = memory_gib - _context_gib(device), 0, 1
    while fails <= LARGEST and peak_gib(settings, device, fails) <= room:
        fits, fails = fails, 2 * fails
    while fails - fits > 1:
        middle = (fits + fails) // 2
        fits, fails = (
            (middle, fails) if peak_gib(settings, device, middle) <= room else (fits, middle)
        )
    return fits


def peak_gib(settings: Settings, device: Device, batch: int) -> float:
    """Peak of the tensors on each device, GiB."""
    train, found = settings.train, trace_of(settings, device.kind)
    model, sharded = found.built.model, train.strategy == "fsdp"
    parts = states_gib(model, train, device.count)
    weights, gradients, states = (0.0, 0.0, 0.0) if train.cpu_offload else parts
    buckets = device.count > 1 and train.strategy == "ddp" and not train.ddp_bucket_view
    held = weights + states + buckets * gradients
    done = np.ones_like(found.done) if train.gradient_accumulation > 1 else found.done
    step = float((found.live_gib(batch) + done * gradients).max())
    layers, root = gathered_gib(found.built, train) if sharded else (0.0, 0.0)
    _, optimizer = adapter_class(device.kind).executed(settings)
    aside = 0.0 if train.cpu_offload else aside_gib(model, optimizer, gradients, device.kind)
    return held + max(step + layers, gradients + root, gradients + aside)


def gathered_gib(built: Built, train: TrainSettings) -> tuple[float, float]:
    """What FSDP holds besides the shards while a layer runs, and when the parts outside the layers
    exchange their gradients, at the end, GiB."""
    sizes = [
        sum(p.numel() for p in part.parameters())
        for part in built.model.modules()
        if isinstance(part, built.layers)
    ]
    layer, root = max(sizes, default=0), built.parameters - sum(sizes)
    full = train.precision.endswith("_full")
    weight = 2 if full or train.precision in AUTOCAST else 4
    reduced = weight if full else 4
    running = weight * (root + 3 * layer) + (weight + reduced) * layer
    return running / GIB, (2 * weight + reduced) * root / GIB


def aside_gib(model: torch.nn.Module, optimizer: str, gradients: float, kind: str) -> float:
    """What AdamW computes aside, GiB: the square roots of all second moments at once (`foreach`), or
    two tensors as large as the largest parameter (torch/optim/adam.py)."""
    if optimizer == "adamw_torch_foreach" or (optimizer == "adamw_torch" and kind != "cpu"):
        return gradients
    if optimizer not in ("adamw_torch", "adamw_torch_loop"):
        return 0.0
    trained = (p.numel() * p.itemsize for p in model.parameters() if p.requires_grad)
    return 2 * max(trained, default=0) / GIB


def _context_gib(device: Device) -> float:
    return 0.0 if device.kind == "cpu" else CONTEXT_GIB


def trace_of(settings: Settings, kind: str) -> Trace:
    """The trace of a model's step on a kind of device; equal work is traced once."""
    model = msgspec.structs.replace(settings.model, checkpoint=None, revision=None)
    sharded = settings.train.strategy == "fsdp" and settings.train.precision in AUTOCAST
    tokens, precision = settings.loader.max_tokens, settings.train.precision
    return _trace(model, tokens, precision, sharded, kind == "cpu")


@cache
def _trace(model: ModelSettings, tokens: int, precision: str, sharded: bool, cpu: bool) -> Trace:
    loader = LoaderSettings(max_tokens=tokens)
    with tempfile.TemporaryDirectory(prefix="feedrate-memory-") as folder:
        built = build_bare(model, loader, stand_in(Path(folder), loader.label))
    train = msgspec.convert({"precision": precision}, TrainSettings)
    cast(built.model.to("meta"), train).train()
    half = getattr(torch, AUTOCAST[precision]) if precision in AUTOCAST else None
    if sharded:  # layers are gathered in half precision
        built.model.to(half)
    live = follow(built, tokens, AsOnDevice(half, cpu=cpu))
    fixed, of_samples, done = np.array(live.moments, dtype=float).T
    trained = sum(p.numel() for p in built.model.parameters() if p.requires_grad)
    return Trace(built, fixed, of_samples / ROWS, done / trained, live.forward)


def stand_in(folder: Path, label: str) -> Path:
    """A folder with what builders read of prepared data: a tokenizer, and a row with a class."""
    train_tokenizer(["a caption"], folder / TOKENIZER)
    pq.write_table(pa.table({"split": ["train"], label: ["a class"]}), folder / SAMPLES)
    return folder


def follow(built: Built, tokens: int, arithmetic: AsOnDevice) -> "Live":
    """Follow the storages of a forward and a backward pass of full samples."""
    live = Live(built.model)
    trained = [p for p in built.model.parameters() if p.requires_grad]
    hooks = [p.register_post_accumulate_grad_hook(live.take) for p in trained]
    with torch.device("meta"), NoValues(), Chosen(built.model), fused_attention(), live:
        batch = empty_batch(built, tokens, ROWS)
        with arithmetic:
            arithmetic.casts = {}
            loss = built.model(**batch, return_loss=True)["loss"]
            arithmetic.casts = None
            live.forward = len(live.moments)
            # loss.backward() would leave these modes, and recomputed layers need them.
            _engine_run_backward((loss,), (torch.ones_like(loss),), False, False, (), True, True)
    for hook in hooks:
        hook.remove()
    return live


class Live(TorchDispatchMode):
    """Sums the bytes of live storages after every operation, without those of a model."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.moments: list[tuple[int, int, int]] = []
        """After each operation: fixed bytes, those of samples, elements of finished gradients."""
        self.forward = 0
        self._bytes = [0, 0]
        self._finished = 0
        own = (t.untyped_storage()._cdata for t in (*model.parameters(), *model.buffers()))
        self._known: dict[int, Any] = dict.fromkeys(own)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._add(tensor.untyped_storage())
        self.moments.append((*self._bytes, self._finished))
        return result

    def take(self, parameter: Tensor) -> None:
        """Count the gradient of a parameter as finished, and release it."""
        self._finished += parameter.numel()
        parameter.grad = None

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        of_samples = size % ROWS == 0

        def forget(_: Any) -> None:
            self._bytes[of_samples] -= size
            del self._known[key]

        self._known[key] = weakref.ref(storage, forget)
        self._bytes[of_samples] += size
