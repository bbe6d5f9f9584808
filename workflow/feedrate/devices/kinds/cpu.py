"""The CPU: one multi-threaded process per rank, and gloo between ranks."""

import platform
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feedrate.config.settings import Settings
from feedrate.config.spec import RunSpec
from feedrate.devices import host
from feedrate.devices.base import Adapter, Counter, Deferred, Memory
from feedrate.devices.host import GIB, kernel_text, memory_gib

if TYPE_CHECKING:
    import torch

ENVIRONMENT = "cpu"
OFFERS = {
    "train.precision": ("fp32", "bf16", "bf16_full", "fp16_full"),
    "train.execution": ("eager", "compiled"),
    "train.strategy": ("ddp", "fsdp"),
    "train.limit_all_gathers": (None,),  # PyTorch's first FSDP needs an accelerator
}

POWERCAP = Path("/sys/class/powercap")
UJ = 1e-6
"""A microjoule, J."""


class DeviceAdapter(Adapter):
    """This process; its memory is its resident set."""

    kind = "cpu"
    pins_memory = False

    def __init__(self, local_rank: int, local_ranks: int) -> None:
        import torch

        super().__init__(local_rank, local_ranks)
        self.device = torch.device("cpu")

    @classmethod
    def launch_variables(cls, spec: RunSpec, environment: Mapping[str, str]) -> dict[str, str]:
        """Threads that wait without spinning, and one heap for all if memory is limited."""
        # Data-loader workers take cores from the model's threads, and a thread that spins at a
        # barrier keeps the one it waits for from running: on two cores a step took 25 times longer.
        needed = {"OMP_WAIT_POLICY": environment.get("OMP_WAIT_POLICY", "PASSIVE")}
        if spec.settings.train.memory_gib is not None:
            # Otherwise each thread reserves addresses for its own heap, more with every core.
            needed["MALLOC_ARENA_MAX"] = "1"
        return needed

    def synchronize(self) -> None:
        """Nothing: calls on the CPU return when their work is done."""

    def memory(self) -> Memory:
        """VmRSS and VmHWM of this process (proc(5))."""
        status = kernel_text(host.PROC / "self/status")
        found = re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", status, re.M)
        gib = {name: int(kib) * 1024 / GIB for name, kib in found}
        return Memory(gib.get("VmRSS"), gib.get("VmHWM"))

    def reset_peak(self) -> None:
        """Set VmHWM back to VmRSS; if the kernel forbids it, the peak counts from the start."""
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")

    def capacity_gib(self) -> float:
        """This rank's share of the host's memory."""
        return memory_gib() / self.local_ranks

    def energy_counter(self) -> Counter:
        """Of the host's processor packages; the host's first rank reports for all."""
        return (lambda: 0.0) if self.local_rank else Packages()

    def defer(self, value: "torch.Tensor") -> Deferred:
        """The number itself."""
        number = float(value)
        return Deferred(lambda: True, lambda: number)

    def device_model(self) -> str:
        """`model name` of /proc/cpuinfo, which ARM lacks, else the machine's architecture."""
        named = re.search(r"^model name\s*:\s*(.+)", kernel_text(host.PROC / "cpuinfo"), re.M)
        return named[1].strip() if named else platform.processor() or platform.machine()

    def training_arguments(
        self,
        common: dict[str, Any],
        settings: Settings,
        warmup_steps: int,  # noqa: ARG002
    ) -> Any:
        """Stock TrainingArguments that use the CPU whatever accelerators the host has."""
        from transformers import TrainingArguments

        return TrainingArguments(
            **{**common, "dataloader_pin_memory": False},
            use_cpu=True,
            bf16=settings.train.precision == "bf16",
            ddp_backend="gloo" if self.local_ranks > 1 or settings.train.cpu_offload else None,
            ddp_find_unused_parameters=False,
        )


class Packages:
    """Energy of the host's processor packages, by the kernel's powercap interface (RAPL; Intel, and
    AMD from kernel 5.11 on), without memory and boards.

    A package's counter wraps at its range, after minutes under load: read it once a minute.
    """

    def __init__(self, root: Path = POWERCAP) -> None:
        # Not `psys`, the whole board, which would count the packages twice.
        self._zones = [
            zone
            for zone in sorted(root.glob("intel-rapl:*"))
            if kernel_text(zone / "name").startswith("package")
        ]
        self._last_uj = [self._read(zone) for zone in self._zones]
        self._total_uj = 0

    def __call__(self) -> float | None:
        """Joules since this object was made; None if a package cannot be read, for example because
        the kernel reserves it for root."""
        now_uj = [self._read(zone) for zone in self._zones]
        for zone, last, now in zip(self._zones, self._last_uj, now_uj, strict=True):
            if last is None or now is None:
                return None
            spent = now - last
            if spent < 0:
                spent += int(kernel_text(zone / "max_energy_range_uj") or 0)
            self._total_uj += spent
        self._last_uj = now_uj
        return self._total_uj * UJ if self._zones else None

    @staticmethod
    def _read(zone: Path) -> int | None:
        text = kernel_text(zone / "energy_uj")
        return int(text) if text.isdigit() else None
