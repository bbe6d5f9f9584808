"""The interface of a device kind, and what settings a kind refuses.

A kind is one file in `devices/kinds/`: a class `DeviceAdapter` and the constants that
docs/extending.md ("Constants of plug-ins") lists.

No module in this folder imports torch before a rank's device is made: planning and launching call
class methods only, and a rank must set its environment variables first.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from feedrate.config.settings import Settings
from feedrate.config.spec import KINDS, Kind, RunSpec
from feedrate.config.values import level_text
from feedrate.core import plugins
from feedrate.core.errors import ExpectedError

if TYPE_CHECKING:
    import torch

COMPILE_MODES = {"compiled": "default", "cuda_graphs": "reduce-overhead"}
"""`train.execution` to the mode of torch.compile."""
DDP_BUCKET_MB = 25  # the default of DistributedDataParallel
BF16_AUTOCAST = ("bf16", "fp8")  # precisions that run operations in bf16 by autocast
AUTOCAST = {**dict.fromkeys(BF16_AUTOCAST, "bfloat16"), "fp16": "float16"}
"""All precisions that run operations in half precision by autocast, with torch's name of it."""


class DeviceError(ExpectedError):
    """The machine lacks the device or software that the job needs; there is no substitute."""


class UnsupportedError(Exception):
    """The device exists but cannot do what the settings ask."""


class Card(NamedTuple):
    """One accelerator of this machine."""

    model: str
    uuid: str = ""
    address: str = ""  # on the PCI bus, as the kernel writes it
    fault: str = ""  # why jobs cannot use it


class Memory(NamedTuple):
    """Memory of one device (cpu: of this process), GiB; None if it cannot be read."""

    now_gib: float | None
    peak_gib: float | None
    reserved_gib: float | None = None
    """Peak that the allocator has taken from the device: tensors, and what it keeps for later."""


class Deferred(NamedTuple):
    """A number on the device that is read later, so that no step waits for it."""

    ready: Callable[[], bool]  # whether `value` returns at once, and costs the device nothing
    value: Callable[[], float]


Counter = Callable[[], float | None]
"""Reads an energy counter: joules since a fixed start; None if it cannot be read."""


def counter(package: str, find: Callable[[Any], Any]) -> Counter:
    """A counter by a driver's package, `pynvml` or `pyhlml`, whose names differ only in a prefix;
    `find` gets the device's handle. Without package, handle or a first reading it gives None."""
    prefix = package.removeprefix("py")
    try:
        library = importlib.import_module(package)
        getattr(library, f"{prefix}Init")()
        handle = find(library)
    except Exception:  # no library, or one without a driver: then nothing is known
        handle = None

    def joules() -> float | None:
        try:
            return float(getattr(library, f"{prefix}DeviceGetTotalEnergyConsumption")(handle)) / 1e3
        except Exception:
            return None

    return joules if handle is not None and joules() is not None else lambda: None


class Adapter(ABC):
    """One rank's device, which the instance takes; raises DeviceError if it is absent. The class
    methods need no device and no torch. Methods that do nothing here are for kinds that need them.
    """

    device: "torch.device"  # the device of this rank's tensors
    kind: ClassVar[Kind]
    pins_memory: ClassVar[bool] = True  # whether copies from page-locked host memory are faster
    profiled_as: ClassVar[str] = "CPU"  # its name in `torch.profiler.ProfilerActivity`
    draws_weights: ClassVar[bool] = True
    """Whether random weights are drawn on the device; else on the host, which takes minutes for
    billions of them."""
    fp8_by_torchao: ClassVar[bool] = True
    """Whether torchao replaces the layers for fp8; else the kind's Trainer does it."""

    def __init__(self, local_rank: int, local_ranks: int) -> None:
        """`local_rank` of `local_ranks` processes on this host."""
        self.local_rank, self.local_ranks = local_rank, local_ranks

    @classmethod
    def cards(cls) -> list[Card]:
        """The accelerators of this kind in the machine, in the driver's order."""
        return []

    @classmethod
    def visible(cls, cards: list[Card], names: str) -> list[Card]:  # noqa: ARG003
        """The cards that a process may use if the variable VISIBLE has these `names`."""
        return cards

    @classmethod
    def numa_nodes(cls, environment: Mapping[str, str]) -> list[int | None]:  # noqa: ARG003
        """The NUMA node of each local rank's device; None or missing if it is unknown."""
        return []

    @classmethod
    def refusals(cls, spec: RunSpec) -> Iterator[str]:  # noqa: ARG003
        """A sentence for each contradiction between settings that NEEDS cannot express."""
        yield from ()

    def check(self, settings: Settings) -> None:  # noqa: B027
        """Raise UnsupportedError for settings that this model of the kind cannot do."""

    @classmethod
    def optimizer(cls, settings: Settings) -> str:
        """The optimizer that the settings amount to, as `train.optimizer` names it."""
        return settings.train.optimizer

    @classmethod
    def launch_variables(cls, spec: RunSpec, environment: Mapping[str, str]) -> dict[str, str]:  # noqa: ARG003
        """Variables that the job's processes need, given the launcher's `environment`."""
        return {}

    @classmethod  # noqa: B027
    def prepare_process(cls, spec: RunSpec, folder: Path) -> None:
        """Set up this process before torch is imported; files for the software go to `folder`."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all work submitted to the device."""

    def mark(self) -> Any:
        """A point between the pieces of work that are submitted before and after it."""
        return perf_counter()

    def seconds(self, start: Any, end: Any) -> float:
        """The time between two marks, s, once the device has reached both."""
        return float(end - start)

    @abstractmethod
    def memory(self) -> Memory:
        """Memory in use now, and its peak since `reset_peak`."""

    @abstractmethod
    def reset_peak(self) -> None:
        """Restart the peak."""

    def release(self) -> None:  # noqa: B027
        """Give back to the device what its allocator keeps without using it."""

    @abstractmethod
    def capacity_gib(self) -> float | None:
        """Memory that this rank can use on the device, GiB; None if it cannot be read."""

    def allocator_retries(self) -> int | None:
        """How often the allocator freed its cache and tried again since `reset_peak`."""
        return None

    @abstractmethod
    def energy_counter(self) -> Counter:
        """Energy of this rank's device; the host's first rank reports what all ranks share."""

    def condition(self) -> dict[str, Any]:
        """What but this job may slow the device now: `device` of the `machine` event."""
        return {}

    @abstractmethod
    def defer(self, value: "torch.Tensor") -> Deferred:
        """Start to fetch a one-element tensor without waiting for the device."""

    @abstractmethod
    def device_model(self) -> str:
        """The model name that the device reports."""

    def driver(self) -> str:
        """Version of the device's driver; empty if there is none."""
        return ""

    def backend(self, settings: Settings) -> str | None:  # noqa: ARG002
        """The backend between the ranks of `training_arguments`; None: the Trainer chooses."""
        return None

    def training_arguments(
        self,
        common: dict[str, Any],
        settings: Settings,
        warmup_steps: int,  # noqa: ARG002
    ) -> Any:
        """TrainingArguments (of transformers), from the `common` ones and the run's settings."""
        from transformers import TrainingArguments

        arguments = common if self.pins_memory else {**common, "dataloader_pin_memory": False}
        return TrainingArguments(
            **arguments,
            use_cpu=self.kind == "cpu",  # even if the host has accelerators
            bf16=settings.train.precision in BF16_AUTOCAST,
            ddp_backend=self.backend(settings),
            ddp_find_unused_parameters=False,
        )

    def trainer_class(self) -> type[Any]:
        """The class of its Trainer."""
        from transformers import Trainer

        return Trainer

    def update(self, trainer: Any) -> None:
        """The Trainer's optimizer step: clip the gradients, apply them, clear them."""
        model = trainer.model_wrapped
        trainer.accelerator.clip_grad_norm_(model.parameters(), trainer.args.max_grad_norm)
        trainer.optimizer.step()
        model.zero_grad()

    def replays(self, trainer: Any) -> dict[str, int]:  # noqa: ARG002
        """`replayed_passes` and `missed_passes` of the `computation` event, where the Trainer
        replays passes as graphs of this kind's own; empty: nothing counts them."""
        return {}

    def exchange(self, settings: Settings) -> Callable[[Any], None] | None:  # noqa: ARG002
        """How gradients of a model are exchanged after the backward pass; None: in the pass."""
        return None

    def autocast(self, precision: str) -> AbstractContextManager[Any]:
        """A context with the half precision of `train.precision`, if that is by autocast."""
        import torch

        if precision not in AUTOCAST:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=getattr(torch, AUTOCAST[precision]))

    def serve(self, model: Any, settings: Settings) -> Any:
        """The model on this device for inference, compiled as `train.execution` says."""
        import torch

        self.hold_fp32(settings.train.precision)
        placed = model.to(self.device)
        mode = COMPILE_MODES.get(settings.train.execution)
        return torch.compile(placed, mode=mode) if mode else placed

    def exchange_format(
        self, settings: Settings, gradients: "torch.dtype"
    ) -> tuple["torch.dtype", int | None]:
        """The type in which ranks exchange `gradients`, and the buckets in MiB (None: one)."""
        return gradients, settings.train.ddp_bucket_mb or DDP_BUCKET_MB

    def hold_fp32(self, precision: str) -> None:  # noqa: B027
        """Compute fp32 operations as `train.precision` says, whatever a library has chosen."""

    def fp32(self) -> str | None:
        """How fp32 is computed: `ieee` (single precision) or `tf32`; None: there is no choice."""
        return None

    def end_of_step(self) -> None:  # noqa: B027
        """Submit the step's work, if the device collects work before it starts."""


def adapter_class(kind: Kind) -> type[Adapter]:
    """The adapter class of a kind; imports no other kind, and not torch."""
    return plugins.load(KINDS, kind).DeviceAdapter


def adapter(kind: Kind, local_rank: int = 0, local_ranks: int = 1) -> Adapter:
    """This rank's device. Raises DeviceError if it is absent."""
    return adapter_class(kind)(local_rank, local_ranks)


def refusals(spec: RunSpec) -> Iterator[str]:
    """A sentence for each setting that the kind of device lacks or that contradicts another."""
    instead = plugins.declared(KINDS, "INSTEAD").get(spec.kind, {})
    for setting, allowed in plugins.declared(KINDS, "OFFERS").get(spec.kind, {}).items():
        value = attrgetter(setting)(spec.settings)
        if value not in allowed:
            choices = ", ".join("null" if choice is None else str(choice) for choice in allowed)
            use = f"; use {instead[setting]}" if setting in instead else ""
            yield f"{setting}: {value} is not available on {spec.kind} (allowed: {choices}){use}"
    for setting, level, other, needed in plugins.declared(KINDS, "NEEDS").get(spec.kind, ()):
        value, other_value = attrgetter(setting, other)(spec.settings)
        if value == level and other_value != needed:
            yield f"{setting}: {level_text(level)} needs {other}: {needed}, not {other_value}"
    yield from adapter_class(spec.kind).refusals(spec)


def check_settings(spec: RunSpec) -> None:
    """Raise UnsupportedError for the first of `refusals`."""
    for sentence in refusals(spec):
        raise UnsupportedError(sentence)
