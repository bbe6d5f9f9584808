"""Intel Gaudi, one HPU a rank, through optimum-habana's Trainer (transformers 4.55)."""

import importlib
import importlib.util
import os
import subprocess
from typing import Any

import torch

from feedrate.config.settings import TrainSettings
from feedrate.devices.base import GIB, Adapter, DeviceError, Memory

STEPS_BEHIND = 2
"""A loss this many steps old has left the queue, so that reading it costs no wait."""


class Behind:
    """A number that is read when later ones have been asked for."""

    def __init__(self, value: torch.Tensor, order: int, latest: "list[int]") -> None:
        self._value, self._order, self._latest = value.detach(), order, latest

    def ready(self) -> bool:
        """Whether enough later numbers were asked for."""
        return self._latest[0] - self._order >= STEPS_BEHIND

    def value(self) -> float:
        """The number."""
        return float(self._value.item())


class DeviceAdapter(Adapter):
    """The HPU of this local rank."""

    kind = "hpu"

    def __init__(self, local_rank: int, local_ranks: int) -> None:
        super().__init__(local_rank, local_ranks)
        for module, package in (
            ("habana_frameworks", "habana-torch-plugin, which comes with the Gaudi software"),
            ("optimum.habana", "optimum-habana"),
        ):
            if not _importable(module):
                raise DeviceError(f"no Gaudi software: the package {package} is not installed here")
        self._hpu: Any = importlib.import_module("habana_frameworks.torch.hpu")
        found = int(self._hpu.device_count()) if self._hpu.is_available() else 0
        if found < local_ranks:
            raise DeviceError(f"the job needs {local_ranks} HPUs on this host, found {found}")
        # As the published script does: the library's own versions of what Gaudi runs badly.
        importlib.import_module(
            "optimum.habana.transformers.modeling_utils"
        ).adapt_transformers_to_gaudi()
        self._latest = [0]

    @property
    def device(self) -> torch.device:
        """The HPU; each process owns one, so it has no index."""
        return torch.device("hpu")

    def synchronize(self) -> None:
        """Hand over what is gathered and wait for it."""
        self.end_of_step()
        self._hpu.synchronize()

    def memory(self) -> Memory:
        """InUse and MaxInUse of the allocator's statistics, as optimum-habana reads them."""
        stats = self._hpu.memory_stats()
        return Memory(stats["InUse"] / GIB, stats["MaxInUse"] / GIB)

    def reset_peak(self) -> None:
        """Start the allocator's peak anew."""
        self._hpu.reset_peak_memory_stats()

    def defer(self, value: torch.Tensor) -> Behind:
        """Keep the number on the device until it has certainly been computed."""
        self._latest[0] += 1
        return Behind(value, self._latest[0], self._latest)

    def device_model(self) -> str:
        """As the driver names it, such as "GAUDI2"."""
        return str(self._hpu.get_device_name())

    def driver(self) -> str:
        """As hl-smi prints it; empty where it cannot be asked."""
        try:
            answer = subprocess.run(
                ["hl-smi", "-Q", "driver_version", "-f", "csv,noheader"],
                capture_output=True,
                text=True,
                timeout=20,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return ""
        return (answer.stdout.split() or [""])[0]

    def training_arguments(
        self, common: dict[str, Any], train: TrainSettings, warmup_steps: int
    ) -> Any:
        """GaudiTrainingArguments; its own throughput leaves out the same steps as ours."""
        from optimum.habana import GaudiTrainingArguments

        return GaudiTrainingArguments(
            **common,
            use_habana=True,
            use_lazy_mode=lazy_mode(),
            bf16=train.precision == "bf16",
            distribution_strategy=train.strategy,
            throughput_warmup_steps=warmup_steps,
            ddp_find_unused_parameters=False,
        )

    def trainer_class(self) -> type[Any]:
        """GaudiTrainer."""
        from optimum.habana import GaudiTrainer

        return GaudiTrainer

    def trainer_kwargs(self, train: TrainSettings) -> dict[str, Any]:
        """A GaudiConfig of our own: the published one is fetched from a hub and decides bf16."""
        from optimum.habana import GaudiConfig

        return {
            "gaudi_config": GaudiConfig(
                use_fused_adam=True,
                use_fused_clip_norm=True,
                use_torch_autocast=train.precision == "bf16",
            )
        }

    def end_of_step(self) -> None:
        """Cut the lazy graph."""
        if lazy_mode():
            importlib.import_module("habana_frameworks.torch.core").mark_step()


def lazy_mode() -> bool:
    """Whether operations are gathered into graphs (PT_HPU_LAZY_MODE, set by the launcher)."""
    return os.environ.get("PT_HPU_LAZY_MODE", "1") == "1"


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
