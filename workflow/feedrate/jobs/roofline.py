"""The rate of training, predicted before anything runs: a roofline over all operations of a step.

A step is traced on torch's meta device, as a GPU would run it. Then

    step_s = max(sum over kernels of max(FLOPs / peak, bytes / bandwidth), kernels x LAUNCH_S)

(S. Williams et al., "Roofline", Communications of the ACM 52, 2009). The peak is the registry's
achievable one for the precision. An eager operation is a kernel; torch.compile fuses operations
(see `fuse`). The wait for data is left out, and so is the exchange between devices, which overlaps
with the backward pass. Caches and small matrices are not modelled: expect errors of up to 25%.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from torch.utils.module_tracker import ModuleTracker

from feedrate.config.devices import Peak
from feedrate.config.settings import BUILDERS, Settings
from feedrate.config.spec import RunSpec
from feedrate.config.values import Name, Positive, Strict
from feedrate.core import plugins
from feedrate.core.files import write_json
from feedrate.devices.base import BF16_AUTOCAST, adapter_class
from feedrate.models.build import Built, build_bare
from feedrate.models.flops import (
    AsOnDevice,
    NoValues,
    empty_batch,
    forward_by_part,
    fused_attention,
    one_pair,
)
from feedrate.models.layers import cast, float8_parts

MEMORY_SHARE = 0.85
"""Share of the data sheet's memory bandwidth that kernels reach: about 0.9 in stream benchmarks of
A100 and H100, and less in PyTorch's kernels for single operations."""
PEAK_SHARE = 0.8
"""Share of a data sheet's peak that large multiplications reach where the registry has no measured
one: that of bf16 on H100."""
LAUNCH_S = {"eager": 14e-6, "compiled": 5e-6, "cuda_graphs": 0.0}
"""The host's time for a kernel by `train.execution`, estimates for server CPUs. Eager: with Python,
autograd and dispatch; compiled: by generated code; a CUDA graph is launched as one."""
ADAM = {
    "adamw_torch": (20, 0),
    "adamw_torch_foreach": (20, 0),
    "adamw_torch_loop": (20, 12),
    "adamw_torch_fused": (7, 0),
}
"""Reads and writes of each parameter by `train.optimizer`, and launches per tensor. Fused: weight,
gradient and two states are read, and all but the gradient written. The others run eight operations
one after another, on two to four values each (torch/optim/adam.py)."""
CLIPPING = 3
"""The same for clipping: the norm reads the gradients, then they are scaled."""
BUCKETS, BUCKET_VIEW = 4, 2
"""The same for DDP's buckets: gradients are copied in and out again, as views only in."""


class UnknownError(Exception):
    """Something that a prediction needs is unknown; the message names it."""


class Roof(Strict, kw_only=True):
    """The limits of a device's kernels, from its registry entry."""

    peaks: list[Peak]
    memory_gb_per_s: Positive | None


class PredictSettings(Strict, kw_only=True):
    """`--settings` of predict-rates: repeat 1 of each cell, and its devices."""

    specs: list[RunSpec]
    devices: dict[Name, Roof]


class Operation(NamedTuple):
    """An operation, or several as one kernel, with the bytes read and written by storage."""

    flops: float
    precision: str
    reads: dict[int, int]
    writes: dict[int, int]


class Step(NamedTuple):
    """Forward and backward pass of a micro-step, and what the optimizer then works on: the storages
    of gradients, and the trained tensors with their bytes."""

    operations: list[Operation]
    gradients: set[int]
    tensors: int
    parameter_bytes: int


def predict_rates(settings: PredictSettings, data: Path, out: Path) -> None:
    """Predict the rate of each cell, print it, and write all to `out` (predicted.json); `data` is
    the manifest of the prepared data, which include the tokenizer."""
    steps: dict[str, Step] = {}
    works: dict[str, dict[str, Any]] = {}
    found = []
    for spec in settings.specs:
        try:
            one = predict(spec, settings.devices[spec.device], data.parent, steps)
            told = f"{one['samples_per_s']:,.0f} samples/s predicted"
        except UnknownError as unknown:
            one, told = {"why": str(unknown)}, f"no prediction: {unknown}"
        print(f"{spec.device} {spec.cell}: {told}")
        work = work_of(spec.settings, data.parent, works)
        found.append({"device": spec.device, "cell": spec.cell, "work": work, **one})
    write_json(out, found)


def work_of(
    settings: Settings, prepared: Path, works: dict[str, dict[str, Any]]
) -> dict[str, Any] | None:
    """The FLOPs of a sample: `flops` of training, and `forward` by part of the model; None for a
    model that declares no parts. `works` keeps them, because many cells share a model."""
    model, tokens = settings.model, settings.loader.max_tokens
    parts = plugins.declared(BUILDERS, "PARTS").get(model.name)
    name = f"{model.label}, {tokens} tokens"
    if parts and name not in works:
        built = build_bare(model, settings.loader, prepared)
        forward = forward_by_part(built.model, one_pair(built.image_px, tokens), parts)
        works[name] = {"model": name, "forward": forward, "flops": built.count_flops(tokens)}
    return works.get(name)


def predict(spec: RunSpec, roof: Roof, prepared: Path, steps: dict[str, Step]) -> dict[str, Any]:
    """A cell's rate, all devices together, and the times of a step: `multiply_s` of kernels that
    FLOPs limit, `move_s` of those that bytes limit, `launch_s` of the host. `steps` keeps traces,
    because many cells share one. Raises UnknownError."""
    settings, train = spec.settings, spec.settings.train
    flops_per_s, bytes_per_s = rates(roof, train.precision.removesuffix("_full"))
    execution, optimizer = adapter_class(spec.kind).executed(settings)
    if optimizer not in ADAM or train.strategy == "fsdp":
        asked = f"train.optimizer: {optimizer} with train.strategy: {train.strategy}"
        raise UnknownError(f"{asked} is not modelled")
    key = repr((settings.model, settings.loader.max_tokens, train.batch_size, train.precision))
    if key not in steps:
        built = build_bare(settings.model, settings.loader, prepared)
        try:
            steps[key] = trace(built, settings)
        except NotImplementedError:
            why = f"the operations of {settings.model.name} depend on its data"
            raise UnknownError(why) from None
    step = steps[key]
    kernels = step.operations if execution == "eager" else fuse(step)
    passes, launches = ADAM[optimizer]
    passes += CLIPPING + (BUCKET_VIEW if train.ddp_bucket_view else BUCKETS) * (spec.count > 1)
    multiply_s, move_s = 0.0, passes * step.parameter_bytes / bytes_per_s
    launch_s = launches * step.tensors * LAUNCH_S["eager"]
    for flops, precision, reads, writes in kernels * train.gradient_accumulation:
        computing_s = flops / flops_per_s[precision]
        moving_s = (sum(reads.values()) + sum(writes.values())) / bytes_per_s
        multiply_s += computing_s if computing_s > moving_s else 0
        move_s += moving_s if computing_s <= moving_s else 0
        launch_s += LAUNCH_S[execution]
    rate = spec.step_samples / max(multiply_s + move_s, launch_s)
    times = {"multiply_s": multiply_s, "move_s": move_s, "launch_s": launch_s}
    return {"samples_per_s": rate, **times}


def rates(roof: Roof, precision: str) -> tuple[dict[str, float], float]:
    """FLOP/s by precision, and bytes/s, that kernels reach on a device. Raises UnknownError where
    the registry lacks the bandwidth or the peak of `precision`, which others default to."""
    peaks = {
        p.precision: 1e12 * (p.achievable_tflops or PEAK_SHARE * (p.datasheet_tflops or 0))
        for p in roof.peaks
    }
    own, gb_per_s = peaks.get(precision), roof.memory_gb_per_s
    if not own or not gb_per_s:
        lacks = [f"peak for {precision}"] * (not own) + ["memory bandwidth"] * (not gb_per_s)
        raise UnknownError(f"its entry in config/devices.yaml has no {' and no '.join(lacks)}")
    if precision == "tf32":  # how the trace's fp32 products run
        peaks["fp32"] = own
    return defaultdict(lambda: own, peaks), MEMORY_SHARE * 1e9 * gb_per_s


def fuse(step: Step) -> list[Operation]:
    """The kernels that torch.compile makes of a step. Two operations fuse if one feeds the other
    and no path between them has a multiplication, which is a kernel of its own. What nothing
    outside a kernel reads is not written."""
    kernels: dict[int, Operation] = {}
    readers: dict[int, set[int]] = defaultdict(set)
    for operation, name in zip(step.operations, _kernels(step.operations), strict=True):
        flops, precision, reads, writes = operation
        kernel = kernels.setdefault(name, Operation(flops, precision, {}, {}))
        kernel.reads.update({s: moved for s, moved in reads.items() if s not in kernel.writes})
        kernel.writes.update(writes)
        for storage in reads:
            readers[storage].add(name)
    for name, kernel in kernels.items():
        for storage in [*kernel.writes]:
            if storage not in step.gradients and not readers[storage] - {name}:
                del kernel.writes[storage]
    return list(kernels.values())


def _kernels(operations: Sequence[Operation]) -> list[int]:
    """The number of each operation's kernel."""
    writer: dict[int, int] = {}
    level: list[int] = []  # changes between multiplications and other work on the way
    leader = list(range(len(operations)))

    def first(number: int) -> int:
        while leader[number] != number:
            number = leader[number]
        return number

    for number, operation in enumerate(operations):
        sources = {writer[storage] for storage in operation.reads if storage in writer}
        apart = {n: bool(operation.flops or operations[n].flops) for n in sources}
        level.append(max((level[n] + apart[n] for n in sources), default=0))
        for n in sources:
            if not apart[n] and level[n] == level[number]:
                leader[first(n)] = first(number)
        writer |= dict.fromkeys(operation.writes, number)
    return [first(number) for number in range(len(operations))]


def trace(built: Built, settings: Settings) -> Step:
    """The operations of a micro-step of a model, which loses its weights. Nothing is computed."""
    train = settings.train
    model = cast(built.model.to("meta"), train).train()
    half = {**dict.fromkeys(BF16_AUTOCAST, torch.bfloat16), "fp16": torch.float16}
    parts = float8_parts(model, built.layers) if train.precision == "fp8" else {}
    recorder = _Recorder({f"{type(model).__name__}.{name}" for name in parts.values()})
    with torch.device("meta"), NoValues():
        batch = empty_batch(built, settings.loader.max_tokens, train.batch_size)
        with fused_attention(), recorder.modules, recorder:
            with AsOnDevice(half.get(train.precision)):
                loss = model(**batch, return_loss=True)["loss"]
            loss.backward()
    trained = [p for p in model.parameters() if p.requires_grad]
    return Step(
        operations=recorder.operations,
        gradients=set(recorder.sizes([p.grad for p in trained])),
        tensors=len(trained),
        parameter_bytes=sum(p.numel() * p.itemsize for p in trained),
    )


class _Recorder(TorchDispatchMode):
    """Notes every operation that moves data; those inside the modules `fp8` multiply in fp8."""

    FREE = (torch.ops.aten._unsafe_view, torch.ops.aten.empty, torch.ops.aten.empty_like)
    PRECISIONS = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}

    def __init__(self, fp8: set[str]) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self.modules = ModuleTracker()
        self._fp8 = fp8
        self._storages: dict[int, Any] = {}  # kept, so that no other gets the same address

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        packet = function._overloadpacket
        if function.is_view or packet in self.FREE:
            return result
        count = flop_registry.get(packet)
        flops = count(*args, **kwargs, out_val=result) if count else 0.0
        reads, writes = self.sizes((args, kwargs)), self.sizes(result)
        precision = self.PRECISIONS.get(args[0].dtype, "") if flops else ""
        if flops and self._fp8 & self.modules.parents:
            halves = {-len(self.operations) - 1: sum(reads.values()) // 2}
            self.operations.append(Operation(0.0, "", reads, halves))  # the cast
            reads, precision = halves, "fp8"
        self.operations.append(Operation(flops, precision, reads, writes))
        return result

    def sizes(self, values: Any) -> dict[int, int]:
        """The bytes of the tensors in `values` by storage; an expanded tensor is read once."""
        found: dict[int, int] = {}
        for tensor in tree_leaves(values):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                self._storages[storage._cdata] = storage
                found[storage._cdata] = min(tensor.numel() * tensor.itemsize, storage.nbytes())
        return found
