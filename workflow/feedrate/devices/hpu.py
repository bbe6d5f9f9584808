"""Intel Gaudi, one HPU a rank, through optimum-habana's Trainer (transformers 4.55)."""

import importlib
import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import torch

from feedrate.config.settings import Settings
from feedrate.core.files import write_json
from feedrate.devices.base import BF16_AUTOCAST, GIB, Adapter, DeviceError, Memory, UnsupportedError
from feedrate.devices.energy import Counter, of_gaudi
from feedrate.devices.hpu_mode import graphs_for_inference, lazy_mode

STEPS_BEHIND = 2
"""A loss this many steps old has left the queue, so that reading it costs no wait."""

SAME_NAME = (
    "pipelining_fwd_bwd", "non_blocking_data_copy", "adam_epsilon", "ddp_bucket_cap_mb",
    "minimize_memory", "sdp_on_bf16", "use_compiled_autograd", "use_regional_compilation",
    "adjust_throughput", "profiling_warmup_steps", "profiling_steps",
    "profiling_warmup_steps_eval", "profiling_steps_eval", "profiling_record_shapes",
    "profiling_with_stack",
)  # fmt: skip
"""Settings of `hpu` that GaudiTrainingArguments knows by the same name."""

CLIP_CLASSES = (
    "CLIPVisionEmbeddings", "CLIPAttention", "CLIPEncoderLayer", "CLIPEncoder",
    "CLIPVisionTransformer", "CLIPVisionModel",
)  # fmt: skip
"""What optimum-habana replaces of CLIP."""


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
        _adapt_models()
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

    def capacity_gib(self) -> float | None:
        """`Limit` of the allocator's statistics."""
        limit = self._hpu.memory_stats().get("Limit")
        return limit / GIB if limit else None

    def energy_counter(self) -> Counter:
        """Of the HPU alone, without its host."""
        return of_gaudi(self.local_rank, self.local_ranks)

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

    def exchanged(
        self, settings: Settings, gradients: "torch.dtype"
    ) -> tuple["torch.dtype", int | None]:
        """Fast DDP sends all gradients at once, in bf16, whatever theirs (optimum-habana's
        `all_reduce_gradients`); DDP in the buckets of its setting."""
        if settings.train.strategy == "fast_ddp":
            return torch.bfloat16, None
        return gradients, settings.hpu.ddp_bucket_cap_mb

    def training_arguments(
        self, common: dict[str, Any], settings: Settings, warmup_steps: int
    ) -> Any:
        """GaudiTrainingArguments; its own throughput leaves out the same steps as ours.

        Raises DeviceError where the library would train on anything but the HPU.
        """
        from optimum.habana import GaudiTrainingArguments

        write_json(Path(common["output_dir"]) / "gaudi_config.json", gaudi_config(settings))
        try:
            arguments = GaudiTrainingArguments(
                **common,
                **arguments_of(settings),
                gaudi_config_name=common["output_dir"],
                throughput_warmup_steps=warmup_steps,
            )
        except ValueError as error:
            raise UnsupportedError(f"optimum-habana refuses the settings: {error}") from error
        if arguments.device.type != "hpu":
            raise DeviceError(
                f"optimum-habana would train on {arguments.device.type}; check that no variable "
                "ACCELERATE_USE_CPU or ACCELERATE_TORCH_DEVICE is set"
            )
        return arguments

    def trainer_class(self) -> type[Any]:
        """GaudiTrainer, put right."""
        from feedrate.devices.gaudi_trainer import JobTrainer

        return JobTrainer

    def update(self, trainer: Any) -> None:
        """As GaudiTrainer does: its own norm, and gradients that keep their place for graphs."""
        model = trainer.model_wrapped
        if trainer.FusedNorm is None:
            trainer.accelerator.clip_grad_norm_(model.parameters(), trainer.args.max_grad_norm)
        else:
            trainer.FusedNorm.clip_norm(model.parameters())
        trainer.optimizer.step()
        trainer._zero_model_grad(model)

    def serve(self, model: Any, settings: Settings) -> Any:
        """The model as `hpu.mode` says, in lazy mode with its passes replayed as graphs where
        `hpu.hpu_graphs_for_inference` asks for it."""
        hpu, train = settings.hpu, settings.train
        if train.execution != "eager" or train.precision not in ("fp32", "bf16"):
            asked = "execution" if train.execution != "eager" else "precision"
            raise UnsupportedError(
                f"train.{asked}: {getattr(train, asked)} is not for hpu devices; they have fp32 "
                "and bf16, and hpu.mode and hpu.hpu_graphs_for_inference"
            )
        placed = model.to(self.device)
        if hpu.mode == "compile":
            return torch.compile(placed, backend="hpu_backend")
        return self._hpu.wrap_in_hpu_graph(placed) if graphs_for_inference(hpu) else placed

    def end_of_step(self) -> None:
        """Cut the lazy graph."""
        if lazy_mode():
            importlib.import_module("habana_frameworks.torch.core").mark_step()


def arguments_of(settings: Settings) -> dict[str, Any]:
    """GaudiTrainingArguments beyond those that all kinds share, from a run's settings."""
    hpu, train = settings.hpu, settings.train
    compiled = hpu.mode == "compile"
    return {
        "use_habana": True,
        "use_lazy_mode": hpu.mode == "lazy",
        "torch_compile": compiled,
        "torch_compile_backend": "hpu_backend" if compiled else None,
        "bf16": train.precision in BF16_AUTOCAST,
        "fp8": train.precision == "fp8",
        "attn_implementation": settings.model.attention,
        "distribution_strategy": train.strategy,
        "ddp_find_unused_parameters": False,
        "use_hpu_graphs_for_training": hpu.hpu_graphs_for_training,
        "use_hpu_graphs_for_inference": graphs_for_inference(hpu),
        # The library's flag comes too late: the loader has copied the batch by then, and waited.
        "accelerator_config": {"non_blocking": hpu.non_blocking_data_copy},
        **{name: getattr(hpu, name) for name in SAME_NAME},
    }


def gaudi_config(settings: Settings) -> dict[str, bool]:
    """The run's gaudi_config.json: the published one is fetched from a hub, and decides bf16."""
    hpu = settings.hpu
    return {
        "use_fused_adam": hpu.fused_adam,
        "use_fused_clip_norm": hpu.fused_clip_norm,
        "use_torch_autocast": settings.train.precision in BF16_AUTOCAST,
        "use_dynamic_shapes": hpu.use_dynamic_shapes,
    }


def _adapt_models() -> None:
    """Take the library's own versions of what Gaudi runs badly, as the published script does.

    CLIP stays as transformers has it: the attention that 1.21.2 puts in its place lays heads and
    tokens out wrongly, so that the text tower fails and the image tower computes something else.
    """
    adapting = _library("optimum.habana.transformers.modeling_utils")
    clip = importlib.import_module("transformers.models.clip.modeling_clip")
    # transformers 5, with which a test stands in for this library, has not all of them.
    stock = {name: getattr(clip, name) for name in CLIP_CLASSES if hasattr(clip, name)}
    adapting.adapt_transformers_to_gaudi()
    for name, kind in stock.items():
        setattr(clip, name, kind)


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _library(module: str) -> Any:
    """A module of optimum-habana. Raises DeviceError where it cannot tell the plugin's version."""
    try:
        return importlib.import_module(module)
    except IndexError:
        raise DeviceError(
            "no Gaudi software: optimum-habana finds no habana-torch-plugin in `pip list`; pip "
            "must be installed beside the interpreter"
        ) from None
