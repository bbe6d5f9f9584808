"""The CPU: threads of one process a rank, and gloo between ranks."""

import platform
from pathlib import Path
from typing import Any

import torch

from feedrate.config.settings import Settings
from feedrate.devices.base import GIB, Adapter, Memory, refuse_fast_ddp
from feedrate.devices.energy import Counter, Packages
from feedrate.devices.host import memory_share_gib


class Known:
    """A number that is there at once."""

    def __init__(self, value: float) -> None:
        self._value = value

    def ready(self) -> bool:
        """Always."""
        return True

    def value(self) -> float:
        """The number."""
        return self._value


class DeviceAdapter(Adapter):
    """This process; memory is its resident set."""

    kind = "cpu"

    @property
    def device(self) -> torch.device:
        """The host."""
        return torch.device("cpu")

    def synchronize(self) -> None:
        """Nothing: calls on the CPU return when their work is done."""

    def memory(self) -> Memory:
        """VmRSS and VmHWM of this process (proc(5))."""
        return read_status(Path("/proc/self/status"))

    def reset_peak(self) -> None:
        """Set VmHWM back to VmRSS; a kernel that forbids it leaves the peak since the start."""
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            return

    def capacity_gib(self) -> float | None:
        """This rank's part of the host's memory."""
        return memory_share_gib(self.local_ranks)

    def energy_counter(self) -> Counter:
        """Of the host's processor packages, told by its first rank for all."""
        return (lambda: 0.0) if self.local_rank else Packages()

    def defer(self, value: torch.Tensor) -> Known:
        """The number itself."""
        return Known(float(value))

    def device_model(self) -> str:
        """`model name` of /proc/cpuinfo, else the machine's architecture."""
        return read_model(Path("/proc/cpuinfo"))

    def driver(self) -> str:
        """None."""
        return ""

    def training_arguments(
        self,
        common: dict[str, Any],
        settings: Settings,
        warmup_steps: int,  # noqa: ARG002
    ) -> Any:
        """Stock TrainingArguments that keep to the CPU whatever else the host has."""
        from transformers import TrainingArguments

        refuse_fast_ddp(self.kind, settings.train)
        return TrainingArguments(
            **{**common, "dataloader_pin_memory": False},
            use_cpu=True,
            bf16=settings.train.precision == "bf16",
            ddp_backend="gloo" if self.local_ranks > 1 or settings.train.cpu_offload else None,
            ddp_find_unused_parameters=False,
        )


def read_status(path: Path) -> Memory:
    """Resident set now and at its peak from a `/proc/<pid>/status`."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return Memory(None, None)
    kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)
           if name in ("VmRSS", "VmHWM")}  # fmt: skip
    now, peak = kib.get("VmRSS"), kib.get("VmHWM")
    return Memory(now and now * 1024 / GIB, peak and peak * 1024 / GIB)


def read_model(path: Path) -> str:
    """The processor's name from a `/proc/cpuinfo`; ARM has none there."""
    try:
        for line in path.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
