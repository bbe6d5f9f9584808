"""NVIDIA GPUs, one per rank, and NCCL between ranks."""

import os
import re
import time
from collections.abc import Mapping
from itertools import takewhile
from statistics import fmean
from typing import TYPE_CHECKING, Any

from feedrate.config.settings import Settings
from feedrate.config.spec import RunSpec
from feedrate.devices import host
from feedrate.devices.base import (
    BF16_AUTOCAST,
    Adapter,
    Card,
    Counter,
    Deferred,
    DeviceError,
    Memory,
    UnsupportedError,
    counter,
)
from feedrate.devices.host import GIB, kernel_text, numa_node, tool_rows

if TYPE_CHECKING:
    import torch

ENVIRONMENT = "cuda"
OFFERS = {"train.strategy": ("ddp", "fsdp"), "train.memory_gib": (None,)}
# A graph's next replay takes the memory of its gradients, so torch refuses to add to them.
NEEDS = (("train.execution", "cuda_graphs", "train.gradient_accumulation", 1),)
NOUNS = ("an NVIDIA GPU", "GPUs")
PCI_VENDOR = "0x10de"
VISIBLE = "CUDA_VISIBLE_DEVICES"
CONTAINER_FLAGS = ("--nv",)
RECORDED_VARIABLES = ("CUDA_", "NCCL_")
RECORDED_PACKAGES = (
    "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu13",
)  # fmt: skip
FIRMWARE = {
    "Video BIOS": "proc/driver/nvidia/gpus/*/information",
    "GPU Firmware": "proc/driver/nvidia/gpus/*/information",
}

SLOWED = {0x08: "its hardware", 0x40: "its hardware, for heat", 0x80: "the power supply"}
LIMITED = {0x02: "a clock that was set", 0x20: "its driver, for heat"}
"""The causes that lower the clocks, by the bits of NVML's reasons. At full load 0x04, the power
limit, is usual. Those of LIMITED may belong to the machine as it is."""
FULL_POWER = 0.98  # below this share of the usual power limit, a limit counts as lowered


class DeviceAdapter(Adapter):
    """The GPU of this local rank."""

    kind = "cuda"
    profiled_as = "CUDA"

    def __init__(self, local_rank: int, local_ranks: int) -> None:
        import torch

        super().__init__(local_rank, local_ranks)
        if getattr(torch.version, "hip", None):
            raise DeviceError("this torch is for ROCm (AMD GPUs), which feedrate does not measure")
        self._cuda: Any = torch.cuda
        if not torch.cuda.is_available():
            check = "check the driver, and that the installed torch is a CUDA build"
            raise DeviceError(f"no CUDA device: torch.cuda.is_available() is false; {check}")
        count = torch.cuda.device_count()
        if count < local_ranks:
            raise DeviceError(
                f"the job needs {local_ranks} CUDA devices on this host, found {count}"
            )
        architectures = torch.cuda.get_arch_list()
        if architectures:
            check_architecture(torch.cuda.get_device_capability(local_rank), architectures)
        torch.cuda.set_device(local_rank)
        self.device = torch.device("cuda", local_rank)
        self._condition_s = time.time()

    @classmethod
    def cards(cls) -> list[Card]:
        """The GPUs that nvidia-smi lists; without nvidia-smi, those in the driver's files."""
        command = ["nvidia-smi", "--query-gpu=name,uuid,pci.bus_id,mig.mode.current"]
        form = r"[^,]+, *GPU-[^,]+, *[\da-f:.]+, *[^,]+"
        cards = []
        for model, uuid, bus_id, mig in tool_rows([*command, "--format=csv,noheader"], form):
            # The driver writes the PCI domain with eight digits, the kernel with four.
            address = re.sub(r"^0000(?=[0-9a-f]{4}:)", "", bus_id.lower())
            fault = "split into MIG instances" if mig == "Enabled" else ""
            cards.append(Card(model, uuid, address, fault))
        if cards:
            return cards
        for file in sorted(host.PROC.glob("driver/nvidia/gpus/*/information")):
            facts = dict(re.findall(r"^(.+?):[ \t]*(.*?)[ \t]*$", kernel_text(file), flags=re.M))
            node = host.DEV / f"nvidia{facts.get('Device Minor')}"
            if node.exists() and facts.get("Model"):
                cards.append(Card(facts["Model"], facts.get("GPU UUID", ""), file.parent.name))
        return cards

    @classmethod
    def visible(cls, cards: list[Card], names: str) -> list[Card]:
        """The GPUs of CUDA_VISIBLE_DEVICES up to the first unknown one, as CUDA reads it."""
        return [card for card in takewhile(bool, _by_names(cards, names)) if card]

    @classmethod
    def numa_nodes(cls, environment: Mapping[str, str]) -> list[int | None]:
        """By the cards' PCI addresses, in the order of CUDA_VISIBLE_DEVICES."""
        cards: list[Card | None] = [*cls.cards()]
        if VISIBLE in environment:
            cards = _by_names(cls.cards(), environment[VISIBLE])
        return [card and numa_node(host.SYS / "bus/pci/devices" / card.address) for card in cards]

    @classmethod
    def launch_variables(cls, spec: RunSpec, environment: Mapping[str, str]) -> dict[str, str]:
        """Number the GPUs by PCI address, and show a job one GPU for each of its ranks."""
        variables = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        if spec.nodes == 1:  # on several nodes, Slurm sets the variable on each node
            names = [str(number) for number in range(spec.count)]
            if VISIBLE in environment:
                names = environment[VISIBLE].split(",")
            variables[VISIBLE] = ",".join(names[: spec.count])
        return variables

    def check(self, settings: Settings) -> None:
        """bf16 and TF32 need a GPU of compute capability 8.0: older ones (T4, V100) emulate bf16,
        slowly, and compute fp32 instead of TF32 without a word."""
        precision = settings.train.precision
        is_new = precision in ("bf16_full", "tf32", *BF16_AUTOCAST)
        if is_new and not self._cuda.is_bf16_supported(including_emulation=False):
            reason = f"{self.device_model()} has neither bf16 nor TF32; use fp16 or fp32"
            raise UnsupportedError(f"train.precision: {precision}: {reason}")

    def synchronize(self) -> None:
        """Wait for all streams of the GPU."""
        self._cuda.synchronize(self.device)

    def mark(self) -> "torch.cuda.Event":
        """An event on the GPU's own clock: a host that waits for its computation costs no time."""
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, start: "torch.cuda.Event", end: "torch.cuda.Event") -> float:
        """The time between two events, s."""
        end.synchronize()
        return start.elapsed_time(end) / 1000  # from ms

    def memory(self) -> Memory:
        """Memory of live tensors, and what the allocator holds with its cache."""
        now = self._cuda.memory_allocated(self.device)
        peak = self._cuda.max_memory_allocated(self.device)
        return Memory(now / GIB, peak / GIB, self._cuda.max_memory_reserved(self.device) / GIB)

    def reset_peak(self) -> None:
        """Restart the allocator's peak and its counts."""
        self._cuda.reset_peak_memory_stats(self.device)
        self._cuda.reset_accumulated_memory_stats(self.device)

    def release(self) -> None:
        """Empty the allocator's cache."""
        self._cuda.empty_cache()

    def capacity_gib(self) -> float:
        """The GPU's memory, as the driver reports it."""
        return float(self._cuda.get_device_properties(self.device).total_memory / GIB)

    def allocator_retries(self) -> int:
        """`num_alloc_retries` of the allocator's statistics."""
        return int(self._cuda.memory_stats(self.device).get("num_alloc_retries", 0))

    def energy_counter(self) -> Counter:
        """Energy of the GPU, without its host."""
        return gpu_counter(self._uuid)

    def condition(self) -> dict[str, Any]:
        """The GPU's clock, what lowers it, and the processes of others (package nvidia-ml-py)."""
        since_s, self._condition_s = self._condition_s, time.time()
        return gpu_condition(self._uuid, since_s)

    @property
    def _uuid(self) -> str:
        return str(self._cuda.get_device_properties(self.device).uuid)

    def defer(self, value: "torch.Tensor") -> Deferred:
        """Copy the number to page-locked memory after the work that computes it."""
        import torch

        copy = torch.empty((), dtype=torch.float32, pin_memory=True)
        copy.copy_(value.detach().float().reshape(()), non_blocking=True)
        event = torch.cuda.Event()
        event.record()

        def number() -> float:
            event.synchronize()
            return float(copy)

        return Deferred(event.query, number)

    def device_model(self) -> str:
        """The driver's name, such as "NVIDIA H100 80GB HBM3"."""
        return str(self._cuda.get_device_name(self.device))

    def driver(self) -> str:
        """The kernel module's version and torch's CUDA version."""
        from torch.version import cuda

        text = kernel_text(host.PROC / "driver/nvidia/version")
        version = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)", text)
        return f"{version[1] if version else ''} (CUDA {cuda})".strip()

    def hold_fp32(self, precision: str) -> None:
        """Turn TF32 on if the `precision` asks for it, else off. PyTorch enables it in
        convolutions; the Trainer and accelerate enable it in compiled code."""
        import torch

        backends: Any = torch.backends
        rounds = precision == "tf32"
        # PyTorch has old and new switches, and raises an error when it reads ones that differ.
        torch.set_float32_matmul_precision("high" if rounds else "highest")
        backends.cudnn.allow_tf32 = rounds
        for part in (backends, backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn):
            part.fp32_precision = "tf32" if rounds else "ieee"

    def fp32(self) -> str:
        """`tf32` or `ieee`; both, joined by `+`, if multiplications and convolutions differ."""
        import torch

        backends: Any = torch.backends
        modes = (backends.cuda.matmul.fp32_precision, backends.cudnn.conv.fp32_precision)
        return "+".join(dict.fromkeys(modes))

    def backend(self, settings: Settings) -> str | None:
        """NCCL; gradients on the host need a backend for the CPU too."""
        if settings.train.cpu_offload:
            return "cuda:nccl,cpu:gloo"
        return "nccl" if self.local_ranks > 1 else None

    def training_arguments(
        self, common: dict[str, Any], settings: Settings, warmup_steps: int
    ) -> Any:
        """The stock TrainingArguments. Raises DeviceError if the only process sees several GPUs,
        since the Trainer would run DataParallel on all of them."""
        count = self._cuda.device_count()
        if self.local_ranks == 1 and count > 1:
            raise DeviceError(f"one process sees {count} CUDA devices; set {VISIBLE} to its own")
        return super().training_arguments(common, settings, warmup_steps)


def check_architecture(capability: tuple[int, int], architectures: list[str]) -> None:
    """Raise DeviceError if a torch with code for these architectures has none for a GPU. A GPU runs
    code of its major and no later minor version, and compiles PTX (compute_90) up to its own."""
    for name in architectures:
        kind, _, digits = name.rstrip("af").rpartition("_")
        version = int(digits[:-1]), int(digits[-1])
        if version <= capability and (kind == "compute" or version[0] == capability[0]):
            return
    raise DeviceError(
        f"this torch has no code for the GPU's compute capability {capability[0]}.{capability[1]} "
        f"(it has {', '.join(architectures)}); install one that has: PyTorch's builds for CUDA 13 "
        "begin at 7.5, those for CUDA 12.6 at 5.0"
    )


def _by_names(cards: list[Card], names: str) -> list[Card | None]:
    """The GPU of each name in a CUDA_VISIBLE_DEVICES: an index, or the start of a UUID."""
    visible: list[Card | None] = []
    for name in filter(None, map(str.strip, names.split(","))):
        if name.isdecimal():
            matches = cards[int(name) : int(name) + 1]
        else:
            matches = [c for c in cards if name.startswith("GPU-") and c.uuid.startswith(name)]
        visible.append(matches[0] if len(matches) == 1 else None)
    return visible


def gpu_condition(uuid: str, since_s: float) -> dict[str, Any]:
    """`device` of the `machine` event (docs/run-files.md), as far as NVML tells; `since_s`, in s
    since 1970, is where `busy` and `others_busy` begin."""
    try:
        import pynvml

        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except Exception:  # no library, or one without a driver: then nothing is known
        return {}

    def ask(name: str, *arguments: Any) -> Any:
        try:
            return getattr(pynvml, f"nvmlDeviceGet{name}")(gpu, *arguments)
        except pynvml.NVMLError:
            return None

    reasons = ask("CurrentClocksThrottleReasons") or 0
    limits = [text for bit, text in LIMITED.items() if reasons & bit]
    power_mw, usual_mw = ask("EnforcedPowerLimit") or 0, ask("PowerManagementDefaultLimit") or 0
    if power_mw < usual_mw * FULL_POWER:
        limits.append(f"a power limit of {power_mw / 1e3:g} W instead of {usual_mw / 1e3:g}")
    since_us = int(since_s * 1e6)
    _, samples = ask("Samples", pynvml.NVML_GPU_UTILIZATION_SAMPLES, since_us) or (0, ())
    busy = [sample.sampleValue.uiVal / 100 for sample in samples]
    pids = {process.pid for process in ask("ComputeRunningProcesses") or ()}
    others = {pid for pid in pids if not host.is_of_this_job(pid)}
    uses = ask("ProcessUtilization", since_us) or ()
    others_busy = [use.smUtil / 100 for use in uses if use.pid in others]
    count = len(others)
    if os.getpid() not in pids:
        # In a container the numbers are the host's, and one of them is this process's.
        count, others_busy = max(0, count - 1), []
    return {
        "clock_mhz": ask("ClockInfo", pynvml.NVML_CLOCK_SM),
        "throttle_reasons": reasons,
        "busy": fmean(busy) if busy else None,
        "slowed_by": [text for bit, text in SLOWED.items() if reasons & bit],
        "limited_by": limits,
        "others": count,
        "others_busy": max(others_busy, default=0.0),
    }


def gpu_counter(uuid: str) -> Counter:
    """The energy counter of a GPU, from its driver (package nvidia-ml-py)."""
    return counter("pynvml", lambda nvml: nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
