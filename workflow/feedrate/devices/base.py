"""What a device adapter does. One adapter per kind; device differences live nowhere else."""

import importlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from feedrate.config.devices import is_called
from feedrate.config.settings import Settings, TrainSettings
from feedrate.config.spec import Kind, RunSpec
from feedrate.core import variables
from feedrate.devices.energy import Counter

if TYPE_CHECKING:
    import torch

GIB = 2**30

COMPILE_MODES = {"compiled": "default", "cuda_graphs": "reduce-overhead"}
"""`train.execution` to the mode of torch.compile."""
DDP_BUCKET_MB = 25
"""DistributedDataParallel's own `bucket_cap_mb`."""
BF16_AUTOCAST = ("bf16", "fp8")
"""Precisions whose operations run in bf16 by autocast."""


class DeviceError(Exception):
    """The machine lacks the device that was asked for; nothing else is taken in its place."""


class UnsupportedError(Exception):
    """The device is there, but cannot do what the settings ask."""


class Memory(NamedTuple):
    """Memory of one device (cpu: of this process), GiB; None where it cannot be read."""

    now_gib: float | None
    peak_gib: float | None


class Deferred(Protocol):
    """A number on the device that is read once it is there, so that no step waits for it."""

    def ready(self) -> bool:
        """Whether `value` returns without waiting for the device."""
        ...

    def value(self) -> float:
        """The number; waits for it where it is not ready."""
        ...


class Adapter(ABC):
    """One rank's device.

    Making one takes possession of the device; it raises DeviceError where it is absent.
    """

    kind: ClassVar[Kind]

    def __init__(self, local_rank: int, local_ranks: int) -> None:
        """`local_rank` of `local_ranks` processes on this host."""
        self.local_rank = local_rank
        self.local_ranks = local_ranks

    @property
    @abstractmethod
    def device(self) -> "torch.device":
        """Where tensors of this rank go."""

    @abstractmethod
    def synchronize(self) -> None:
        """Return once all work given to the device has ended."""

    @abstractmethod
    def memory(self) -> Memory:
        """Memory in use now and at its peak since `reset_peak`."""

    @abstractmethod
    def reset_peak(self) -> None:
        """Start the peak anew."""

    @abstractmethod
    def capacity_gib(self) -> float | None:
        """Memory that the device has for this rank; None where it cannot be read."""

    def allocator_retries(self) -> int | None:
        """Times since `reset_peak` that memory was given back and asked for again; None: no count.

        At its memory's limit a device spends time on that before it fails.
        """
        return None

    @abstractmethod
    def energy_counter(self) -> Counter:
        """Joules that this rank's device takes; of what ranks share, the host's first answers."""

    @abstractmethod
    def defer(self, value: "torch.Tensor") -> Deferred:
        """Fetch a one-element tensor without waiting for the device."""

    @abstractmethod
    def device_model(self) -> str:
        """What the device calls itself."""

    @abstractmethod
    def driver(self) -> str:
        """Version of the device's driver; empty where there is none."""

    @abstractmethod
    def training_arguments(
        self, common: dict[str, Any], settings: Settings, warmup_steps: int
    ) -> Any:
        """TrainingArguments of this kind from those that all kinds share.

        Raises UnsupportedError where a setting is not for this kind.
        """

    def trainer_class(self) -> type[Any]:
        """The Trainer that drives this kind."""
        from transformers import Trainer

        return Trainer

    def update(self, trainer: Any) -> None:
        """What the Trainer's loop does with a step's gradients: clip them, use them, clear them."""
        model = trainer.model_wrapped
        trainer.accelerator.clip_grad_norm_(model.parameters(), trainer.args.max_grad_norm)
        trainer.optimizer.step()
        model.zero_grad()

    def autocast(self, precision: str) -> AbstractContextManager[Any]:
        """In it operations run in the half precision that `train.precision` names, if it names one
        that leaves the weights as they are."""
        import torch

        halves = {**dict.fromkeys(BF16_AUTOCAST, torch.bfloat16), "fp16": torch.float16}
        if precision not in halves:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=halves[precision])

    def serve(self, model: Any, settings: Settings) -> Any:
        """The model on this device, as its forward passes alone are to run: as `train.execution`
        says, or what takes its place on this kind.

        Raises UnsupportedError where a setting is not for this kind.
        """
        import torch

        train = settings.train
        refuse_cuda_only(self.kind, train)
        self.hold_fp32()
        placed = model.to(self.device)
        if train.execution == "eager":
            return placed
        return torch.compile(placed, mode=COMPILE_MODES[train.execution])

    def exchanged(
        self, settings: Settings, gradients: "torch.dtype"
    ) -> tuple["torch.dtype", int | None]:
        """What ranks send each other for `gradients`: the numbers' type, and how many MiB at a time
        (None: all at once)."""
        return gradients, settings.train.ddp_bucket_mb or DDP_BUCKET_MB

    # Empty on purpose: other kinds have one fp32.
    def hold_fp32(self) -> None:  # noqa: B027
        """Let fp32 be single precision again, whatever a library has chosen in its place."""

    def fp32(self) -> str | None:
        """How fp32 is computed, `ieee` being what it says; None: there is no choice."""
        return None

    # Empty on purpose: most devices start on work as it is given.
    def end_of_step(self) -> None:  # noqa: B027
        """Hand over the step's work, where the device gathers it lazily."""


def adapter(kind: Kind, local_rank: int = 0, local_ranks: int = 1) -> Adapter:
    """The adapter of a kind; libraries of other kinds are not touched.

    Raises DeviceError where the device is absent.
    """
    module = importlib.import_module(f"feedrate.devices.{kind}")
    made: Adapter = module.DeviceAdapter(local_rank, local_ranks)
    return made


def prepare_process(spec: RunSpec, folder: Path) -> None:
    """Set this process up for its kind of device; call before torch is imported.

    Files that the device's software wants go to `folder`. Raises UnsupportedError where settings do
    not go together.
    """
    if spec.kind == "hpu":
        from feedrate.devices import hpu_mode  # it imports this module

        hpu_mode.prepare(spec, folder)


def refuse_cuda_only(kind: Kind, train: TrainSettings) -> None:
    """Raise UnsupportedError for what only cuda has."""
    if kind != "cuda" and (train.precision == "fp16" or train.execution == "cuda_graphs"):
        asked = "precision: fp16" if train.precision == "fp16" else "execution: cuda_graphs"
        raise UnsupportedError(f"train.{asked} is for cuda devices, and this one is {kind}")


def refuse_fast_ddp(kind: Kind, train: TrainSettings) -> None:
    """Raise UnsupportedError for the strategy that only hpu has."""
    if train.strategy == "fast_ddp":
        raise UnsupportedError(
            f"train.strategy: fast_ddp is a strategy of hpu devices, and this one is {kind}; "
            "use ddp"
        )


# Whether a job got what it asked for; a job on the wrong device deserves another try elsewhere.


def check_count(spec: RunSpec, world_size: int, local_ranks: int) -> None:
    """Raise DeviceError where the launcher started other processes than the job asked for."""
    asked = (spec.count, spec.count // spec.nodes)
    if (world_size, local_ranks) != asked:
        raise DeviceError(
            f"the job asked for {asked[0]} processes, {asked[1]} on each node, and got "
            f"{world_size}, {local_ranks} on this one (launcher: {spec.launcher})"
        )


def check_model(spec: RunSpec, model: str, environment: Mapping[str, str] = os.environ) -> None:
    """Raise DeviceError where `model` (what the device calls itself) is not as registered."""
    try:
        pattern = json.loads(environment.get(variables.MODEL_PATTERNS, "{}")).get(spec.device)
    except (ValueError, AttributeError):
        raise DeviceError(
            f"{variables.MODEL_PATTERNS} is not JSON of {{device: pattern}}"
        ) from None
    if pattern and not is_called(model, pattern):
        raise DeviceError(
            f"the job asked for {spec.device} (model_pattern {pattern!r}) and got {model!r}"
        )
