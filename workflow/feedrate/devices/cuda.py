"""NVIDIA GPUs, one a rank, and nccl between ranks."""

import re
from pathlib import Path
from typing import Any

import torch

from feedrate.config.settings import Settings, TrainSettings
from feedrate.devices.base import BF16_AUTOCAST, GIB, Adapter, DeviceError, Memory, refuse_fast_ddp
from feedrate.devices.energy import Counter, of_gpu

DRIVER_FILE = Path("/proc/driver/nvidia/version")


class Copied:
    """A number on its way to page-locked host memory."""

    def __init__(self, value: torch.Tensor) -> None:
        self._host = torch.empty((), dtype=torch.float32, pin_memory=True)
        self._host.copy_(value.detach().float().reshape(()), non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record()

    def ready(self) -> bool:
        """Whether the copy has ended."""
        return bool(self._event.query())

    def value(self) -> float:
        """The number, once the copy has ended."""
        self._event.synchronize()
        return float(self._host)


class DeviceAdapter(Adapter):
    """The GPU of this local rank."""

    kind = "cuda"

    def __init__(self, local_rank: int, local_ranks: int) -> None:
        super().__init__(local_rank, local_ranks)
        if not torch.cuda.is_available():
            raise DeviceError(
                "no CUDA device: torch.cuda.is_available() is false; check the driver, and that "
                "the torch installed is a CUDA build"
            )
        found = torch.cuda.device_count()
        if found < local_ranks:
            raise DeviceError(
                f"the job needs {local_ranks} CUDA devices on this host, found {found}"
            )
        torch.cuda.set_device(local_rank)

    @property
    def device(self) -> torch.device:
        """The GPU."""
        return torch.device("cuda", self.local_rank)

    def synchronize(self) -> None:
        """Wait for all streams of the GPU."""
        torch.cuda.synchronize(self.device)

    def memory(self) -> Memory:
        """Bytes in live tensors (not what the allocator keeps)."""
        return Memory(
            torch.cuda.memory_allocated(self.device) / GIB,
            torch.cuda.max_memory_allocated(self.device) / GIB,
        )

    def reset_peak(self) -> None:
        """Start the allocator's peak and its counts anew."""
        torch.cuda.reset_peak_memory_stats(self.device)
        torch.cuda.reset_accumulated_memory_stats(self.device)

    def capacity_gib(self) -> float:
        """The GPU's memory, as the driver counts it."""
        return torch.cuda.get_device_properties(self.device).total_memory / GIB

    def allocator_retries(self) -> int:
        """`num_alloc_retries`: the allocator emptied its cache to find room."""
        return int(torch.cuda.memory_stats(self.device).get("num_alloc_retries", 0))

    def energy_counter(self) -> Counter:
        """Of the GPU alone, without its host."""
        return of_gpu(str(torch.cuda.get_device_properties(self.device).uuid))

    def defer(self, value: torch.Tensor) -> Copied:
        """Copy to page-locked memory behind the work that makes the number."""
        return Copied(value)

    def device_model(self) -> str:
        """As the driver names it, such as "NVIDIA H100 80GB HBM3"."""
        return torch.cuda.get_device_name(self.device)

    def driver(self) -> str:
        """The kernel module's version and torch's CUDA version."""
        return f"{read_driver(DRIVER_FILE)} (CUDA {torch.version.cuda})".strip()

    def hold_fp32(self) -> None:
        """Turn TF32 off: PyTorch has it on in convolutions, and the Trainer and accelerate turn it
        on in all they compile."""
        hold_fp32()

    def fp32(self) -> str:
        """`tf32` where any multiplication or convolution may use it."""
        return read_fp32()

    def training_arguments(
        self,
        common: dict[str, Any],
        settings: Settings,
        warmup_steps: int,  # noqa: ARG002
    ) -> Any:
        """Stock TrainingArguments.

        Raises DeviceError where one process sees several GPUs: Trainer would then run
        DataParallel over all of them.
        """
        from transformers import TrainingArguments

        refuse_fast_ddp(self.kind, settings.train)
        if self.local_ranks == 1 and torch.cuda.device_count() > 1:
            raise DeviceError(
                f"one process sees {torch.cuda.device_count()} CUDA devices; set "
                "CUDA_VISIBLE_DEVICES to the one it may use"
            )
        return TrainingArguments(
            **common,
            bf16=settings.train.precision in BF16_AUTOCAST,
            ddp_backend=self._backend(settings.train),
            ddp_find_unused_parameters=False,
        )

    def _backend(self, train: TrainSettings) -> str | None:
        """What joins the ranks; gradients that rest on the host need a backend there too."""
        if train.cpu_offload:
            return "cuda:nccl,cpu:gloo"
        return "nccl" if self.local_ranks > 1 else None


def hold_fp32() -> None:
    """IEEE single precision in matrix multiplications and convolutions, of this process."""
    backends: Any = torch.backends
    # PyTorch has an old set of switches and a new one, and refuses to tell where they differ.
    torch.set_float32_matmul_precision("highest")
    backends.cudnn.allow_tf32 = False
    for one in (backends, backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn):
        one.fp32_precision = "ieee"


def read_fp32() -> str:
    """`ieee`, or the first other precision that fp32 is computed in."""
    backends: Any = torch.backends
    used = (backends.cuda.matmul.fp32_precision, backends.cudnn.conv.fp32_precision)
    return next((one for one in used if one != "ieee"), "ieee")


def read_driver(path: Path) -> str:
    """The version in the driver's own file; empty where it cannot be read."""
    try:
        found = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)", path.read_text(errors="replace"))
    except OSError:
        return ""
    return found[1] if found else ""
