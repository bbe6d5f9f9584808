"""The CPU: one multi-threaded process per rank, and gloo between ranks."""

import platform
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from feedrate.config.settings import Settings
from feedrate.config.spec import RunSpec
from feedrate.devices import host
from feedrate.devices.base import Adapter, Counter, Deferred, Memory
from feedrate.devices.host import GIB, kernel_number, kernel_text, memory_gib

if TYPE_CHECKING:
    import torch

ENVIRONMENT = "cpu"
FIRMWARE = {"microcode": "proc/cpuinfo"}
OFFERS = {
    "train.precision": ("fp32", "bf16", "bf16_full", "fp16_full"),
    "train.execution": ("eager", "compiled"),
    "train.strategy": ("ddp", "fsdp"),
    "train.limit_all_gathers": (None, True, False),
}

POWERCAP = Path("/sys/class/powercap")


class DeviceAdapter(Adapter):
    """The host's CPU; its memory is the resident set of this process."""

    kind = "cpu"
    pins_memory = False

    def __init__(self, local_rank: int, local_ranks: int) -> None:
        import torch

        super().__init__(local_rank, local_ranks)
        self.device = torch.device("cpu")
        if torch._C._get_accelerator().type != "cpu":
            # A build for GPUs names them even where the job uses none, and FSDP would shard there.
            torch._C._get_accelerator = lambda check=False: torch.device("cpu")  # noqa: ARG005

    @classmethod
    def launch_variables(cls, spec: RunSpec, environment: Mapping[str, str]) -> dict[str, str]:
        """Let threads wait without spinning, and share one heap if memory is limited."""
        # A thread that spins at a barrier keeps the thread it waits for from running, if loader
        # workers take cores: on two cores a step took 25 times longer.
        variables = {"OMP_WAIT_POLICY": environment.get("OMP_WAIT_POLICY", "PASSIVE")}
        if spec.settings.train.memory_gib is not None:
            # By default each thread reserves addresses for a heap of its own.
            variables["MALLOC_ARENA_MAX"] = "1"
        return variables

    def synchronize(self) -> None:
        """Return at once: calls on the CPU return when their work is done."""

    def memory(self) -> Memory:
        """VmRSS and VmHWM of this process (proc(5))."""
        status = kernel_text(host.PROC / "self/status")
        sizes = re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", status, re.M)
        gib = {name: int(kib) * 1024 / GIB for name, kib in sizes}
        return Memory(gib.get("VmRSS"), gib.get("VmHWM"))

    def reset_peak(self) -> None:
        """Set VmHWM back to VmRSS. If the kernel forbids that, the peak is the process's own."""
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")

    def capacity_gib(self) -> float:
        """This rank's share of the host's memory."""
        return memory_gib() / self.local_ranks

    def energy_counter(self) -> Counter:
        """Energy of the host's processor packages, which the host's first rank reports for all."""
        return (lambda: 0.0) if self.local_rank else Packages()

    def defer(self, value: "torch.Tensor") -> Deferred:
        """The number itself."""
        number = float(value)
        return Deferred(lambda: True, lambda: number)

    def device_model(self) -> str:
        """`model name` of /proc/cpuinfo, which ARM lacks, else the machine's architecture."""
        name = re.search(r"^model name\s*:\s*(.+)", kernel_text(host.PROC / "cpuinfo"), re.M)
        return name[1].strip() if name else platform.processor() or platform.machine()

    def backend(self, settings: Settings) -> str | None:
        """Gloo, which offloading needs in a rank alone too."""
        return "gloo" if self.local_ranks > 1 or settings.train.cpu_offload else None


class Packages:
    """Energy of the host's processor packages, J, from the kernel's powercap interface (RAPL). A
    counter wraps after minutes under load: read it once a minute."""

    def __init__(self, root: Path = POWERCAP) -> None:
        # `psys`, the whole board, would count the packages twice.
        self._zones = [
            zone
            for zone in sorted(root.glob("intel-rapl:*"))
            if kernel_text(zone / "name").startswith("package")
        ]
        self._last_uj = self._read()
        self._total_uj = 0

    def __call__(self) -> float | None:
        """Joules since this object was made; None if a package cannot be read, as only by root."""
        now_uj = self._read()
        if not self._zones or -1 in (*now_uj, *self._last_uj):
            return None
        for zone, last, now in zip(self._zones, self._last_uj, now_uj, strict=True):
            wrapped = kernel_number(zone / "max_energy_range_uj", 0) if now < last else 0
            self._total_uj += now - last + wrapped
        self._last_uj = now_uj
        return self._total_uj / 1e6

    def _read(self) -> list[int]:
        return [kernel_number(zone / "energy_uj", -1) for zone in self._zones]
