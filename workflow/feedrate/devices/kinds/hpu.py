"""Intel Gaudi, one HPU per rank, with optimum-habana's Trainer (transformers 4.55) or, if
`hpu.trainer` says so, with that of transformers.

`_habana.py` has the code that needs these libraries.
"""

import atexit
import importlib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from feedrate.config.settings import Settings
from feedrate.config.spec import RunSpec
from feedrate.core.files import write_text
from feedrate.devices import host
from feedrate.devices.base import (
    Adapter,
    Card,
    Counter,
    Deferred,
    DeviceError,
    Memory,
    UnsupportedError,
)
from feedrate.devices.host import GIB, kernel_number, kernel_text, numa_node, parse_list, tool_rows
from feedrate.devices.kinds import _habana
from feedrate.devices.kinds._habana import OPTIMUM

if TYPE_CHECKING:
    import torch

ENVIRONMENT = "gaudi"
OFFERS = {
    "train.precision": ("fp32", "bf16", "fp8", "bf16_full"),
    "train.execution": ("eager",),
    "train.strategy": ("ddp", "fast_ddp"),
    "train.limit_all_gathers": (None,),
    "train.memory_gib": (None,),
    "train.ddp_bucket_mb": (None,),
    "train.ddp_static_graph": (False,),
    "train.ddp_bucket_view": (False,),
    "loader.non_blocking": (False,),
}
INSTEAD = {
    "train.execution": "hpu.mode",
    "train.ddp_bucket_mb": "hpu.ddp_bucket_cap_mb",
    "train.ddp_static_graph": "the settings of `hpu`",
    "train.ddp_bucket_view": "the settings of `hpu`",
    "loader.non_blocking": "hpu.non_blocking_data_copy",
}
NEEDS = (
    ("hpu.hpu_graphs_for_training", True, "hpu.mode", "lazy"),
    ("hpu.hpu_graphs_for_inference", True, "hpu.mode", "lazy"),
    ("hpu.pipelining_fwd_bwd", True, "hpu.mode", "lazy"),
    ("hpu.use_dynamic_shapes", True, "hpu.mode", "lazy"),
    # Fast DDP packs the gradients in a graph.
    ("train.strategy", "fast_ddp", "hpu.mode", "lazy"),
    ("hpu.use_compiled_autograd", True, "hpu.mode", "compile"),
    ("hpu.use_regional_compilation", True, "hpu.mode", "compile"),
    ("hpu.minimize_memory", True, "train.precision", "fp8"),
)
NOUNS = ("a Gaudi card", "Gaudi cards")
PCI_VENDOR = "0x1da3"
VISIBLE = "HABANA_VISIBLE_MODULES"
MODULE = "HLS_MODULE_ID"
"""The module of this process, which the Gaudi software sets when ranks connect."""
SETS = ("HLS_MODULE_ID",)
RECORDED_VARIABLES = ("HABANA_", "HCCL_", "HCL_", "PT_")
RECORDED_PACKAGES = (  # Intel's images have pillow-simd in place of pillow
    "optimum-habana", "optimum", "habana-torch-plugin", "habana-media-loader", "pillow-simd",
)  # fmt: skip
FIRMWARE = {"cpucp_ver": "sys/class/accel/accel[0-9]*/device/cpucp_ver"}

VENDOR_MODULE = "habana_frameworks"
VENDOR_INTERPRETERS = (
    "/usr/bin/python3", "/usr/local/bin/python3", "/usr/bin/python3.12", "/usr/bin/python3.11",
    "/usr/local/bin/python3.11", "$HABANALABS_VIRTUAL_DIR/bin/python",
    "~/habanalabs-venv/bin/python",
)  # fmt: skip
"""Those of Intel's images, and the environment that Intel's installer makes with --venv."""
VENDOR_PROFILE = "/etc/profile.d/habanalabs.sh"

GAUDI_MODELS = {
    "0x1000": "GAUDI", "0x1010": "GAUDI", "0x1020": "GAUDI2", "0x1021": "GAUDI2",
    "0x1030": "GAUDI2", "0x1060": "GAUDI3", "0x1063": "GAUDI3",
}  # fmt: skip
"""PCI device id to model, as the kernel's driver and Intel's tools name them."""

LAZY_MODE = "PT_HPU_LAZY_MODE"
BF16_OPS, FP32_OPS = "PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST", "PT_HPU_AUTOCAST_FP32_OPS_LIST"


class DeviceAdapter(Adapter):
    """The HPU of this local rank."""

    kind = "hpu"
    profiled_as = "HPU"
    draws_weights = False  # not tried: lazy mode would collect all draws in one graph
    fp8_by_torchao = False
    trainer: ClassVar[str] = OPTIMUM
    """`hpu.trainer` of this process's job, which `prepare_process` sets."""

    def __init__(self, local_rank: int, local_ranks: int) -> None:
        import torch

        super().__init__(local_rank, local_ranks)
        packages = {"habana_frameworks": "habana-torch-plugin, which comes with the Gaudi software"}
        if self.trainer == OPTIMUM:
            packages["optimum.habana"] = OPTIMUM
        for module, package in packages.items():
            if not _habana.importable(module):
                raise DeviceError(f"no Gaudi software: the package {package} is not installed here")
        try:
            self._hpu: Any = importlib.import_module("habana_frameworks.torch.hpu")
        except (AssertionError, AttributeError, ImportError, OSError) as error:
            build = f"torch {torch.__version__}"
            # Intel's: 2.6.0+git74cd574 up to Gaudi software 1.21, then 2.9.0+hpu.1.23.0.695.
            if not re.match(r".*\+(git|hpu)", torch.__version__):
                build += ", a stock build; Gaudi needs Intel's torch"
            raise DeviceError(
                f"habana_frameworks cannot be imported with {build} ({error})"
            ) from error
        self._module = os.environ.get(MODULE)  # the Trainer of transformers sets another, too late
        count = int(self._hpu.device_count()) if self._hpu.is_available() else 0
        if count < local_ranks:
            raise DeviceError(f"the job needs {local_ranks} HPUs on this host, found {count}")
        if self.trainer == OPTIMUM:
            _habana.adapt_models()
        self.device = torch.device("hpu")  # each process has one, so it has no index

    @classmethod
    def cards(cls) -> list[Card]:
        """The cards that hl-smi lists; without hl-smi, those that the kernel lists by PCI id."""
        command = ["hl-smi", "-Q", "name", "-f", "csv,noheader"]
        cards = [Card(name) for (name,) in tool_rows(command, r"(HL-?\d|gaudi)[^,]*")]
        if cards:
            return cards
        for entry in sorted(host.SYS.glob("class/accel/accel[0-9]*")):
            is_gaudi = kernel_text(entry / "device/vendor") == PCI_VENDOR
            if is_gaudi and (host.DEV / "accel" / entry.name).exists():
                number = kernel_text(entry / "device/device")
                cards.append(Card(GAUDI_MODELS.get(number, "Gaudi of an unknown generation")))
        return cards

    @classmethod
    def visible(cls, cards: list[Card], names: str) -> list[Card]:
        """As many as HABANA_VISIBLE_MODULES names."""
        return cards[: len([name for name in names.split(",") if name.strip()])]

    @classmethod
    def numa_nodes(cls, environment: Mapping[str, str]) -> list[int | None]:
        """Local rank r has the module of number r, or the r-th of HABANA_VISIBLE_MODULES, as the
        Gaudi software assigns them (`_setup_module_id` of habana_frameworks)."""
        nodes = {
            kernel_number(folder / "device/module_id", -1): numa_node(folder / "device")
            for folder in (host.SYS / "class/accel").glob("accel[0-9]*")
        }
        modules = parse_list(environment.get(VISIBLE, "")) or range(max(nodes, default=-1) + 1)
        return [nodes.get(module) for module in modules]

    @classmethod
    def refusals(cls, spec: RunSpec) -> Iterator[str]:
        """Contradictions, and what the Trainer of transformers lacks."""
        return _habana.contradictions(spec)

    @classmethod
    def optimizer(cls, settings: Settings) -> str:
        """Gaudi has its own fused AdamW."""
        return "adamw_torch_fused" if settings.hpu.fused_adam else settings.train.optimizer

    @classmethod
    def launch_variables(cls, spec: RunSpec, environment: Mapping[str, str]) -> dict[str, str]:
        """Set the mode, since the software's default has changed, and the modules that Slurm
        grants. By itself the software gives a lone process any card."""
        variables = {LAZY_MODE: "1" if spec.settings.hpu.mode == "lazy" else "0"}
        modules = environment.get(VISIBLE, "")
        if not modules:
            modules = ",".join(map(str, _habana.granted_modules(spec, environment)))
            if modules:
                variables[VISIBLE] = modules
        if spec.count == 1 and modules.strip().isdigit():
            variables[MODULE] = modules.strip()
        return variables

    @classmethod
    def prepare_process(cls, spec: RunSpec, folder: Path) -> None:
        """Set the variables that the Gaudi software reads when torch loads it."""
        hpu = spec.settings.hpu
        cls.trainer = hpu.trainer
        os.environ |= cls.launch_variables(spec, os.environ)
        if hpu.autocast_bf16_ops:
            lists = {BF16_OPS: hpu.autocast_bf16_ops, FP32_OPS: hpu.autocast_fp32_ops}
            for variable, operations in lists.items():
                path = folder / f"{variable.lower()}.txt"
                write_text(path, "".join(f"{operation}\n" for operation in operations))
                os.environ[variable] = str(path)
        # optimum-habana asks `pip list` for the plugin's version. Intel's images have pip in
        # another folder than the interpreter, behind the driver's environment on PATH.
        programs = folder / f"bin.{os.getpid()}"  # not in /tmp, where clusters may forbid programs
        programs.mkdir(exist_ok=True)
        atexit.register(shutil.rmtree, programs, ignore_errors=True)
        pip = programs / "pip"
        pip.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m pip "$@"\n')
        pip.chmod(0o755)
        os.environ["PATH"] = os.pathsep.join([str(programs), os.environ.get("PATH", "")])

    def check(self, settings: Settings) -> None:
        """fp8 needs Gaudi2 or later."""
        model = self.device_model()
        if settings.train.precision == "fp8" and _habana.FIRST_GENERATION.fullmatch(model):
            raise UnsupportedError(f"train.precision: fp8: {model}, the first generation, has none")

    def synchronize(self) -> None:
        """Submit the collected operations and wait for them."""
        self.end_of_step()
        self._hpu.synchronize()

    def memory(self) -> Memory:
        """The allocator's statistics. After a reset, MaxInUse is 0 until something is allocated."""
        stats = self._hpu.memory_stats()
        return Memory(stats["InUse"] / GIB, max(stats["InUse"], stats["MaxInUse"]) / GIB)

    def reset_peak(self) -> None:
        """Restart the allocator's peak."""
        self._hpu.reset_peak_memory_stats()

    def capacity_gib(self) -> float | None:
        """`Limit` of the allocator's statistics."""
        limit = self._hpu.memory_stats().get("Limit")
        return limit / GIB if limit else None

    def energy_counter(self) -> Counter:
        """Energy of the HPU, without its host."""
        return _habana.gaudi_counter(self._module)

    def defer(self, value: "torch.Tensor") -> Deferred:
        """Leave the number on the device: in lazy mode each reading submits collected operations
        and waits. So does another tensor made from it, as by `detach`."""
        return Deferred(lambda: False, lambda: float(value.item()))

    def device_model(self) -> str:
        """The driver's name, such as "GAUDI2"."""
        return str(self._hpu.get_device_name())

    def driver(self) -> str:
        """The version that hl-smi prints; empty if hl-smi fails."""
        rows = tool_rows(["hl-smi", "-Q", "driver_version", "-f", "csv,noheader"], r"\d+\.[^,]*")
        return rows[0][0].split()[0] if rows else ""

    def exchange_format(
        self, settings: Settings, gradients: "torch.dtype"
    ) -> tuple["torch.dtype", int | None]:
        """Fast DDP sends all gradients at once and always in bf16 (optimum-habana's
        `all_reduce_gradients`); DDP uses the buckets of its setting."""
        import torch

        if settings.train.strategy == "fast_ddp":
            return torch.bfloat16, None
        return gradients, settings.hpu.ddp_bucket_cap_mb

    def training_arguments(
        self, common: dict[str, Any], settings: Settings, warmup_steps: int
    ) -> Any:
        """The arguments of `hpu.trainer`; its throughput leaves out the same steps as ours. Raises
        UnsupportedError for refused settings, DeviceError for another device."""
        try:
            arguments = _habana.make_arguments(common, settings, warmup_steps)
        except ValueError as error:
            raise UnsupportedError(f"{self.trainer} refuses the settings: {error}") from error
        if arguments.device.type != "hpu":
            raise DeviceError(
                f"{self.trainer} would train on {arguments.device.type}; check that it knows hpu, "
                "and that no variable ACCELERATE_USE_CPU or ACCELERATE_TORCH_DEVICE is set"
            )
        return arguments

    def trainer_class(self) -> type[Any]:
        """GaudiTrainer with corrections, or the Trainer of transformers."""
        if self.trainer != OPTIMUM:
            return super().trainer_class()
        from optimum.habana import GaudiTrainer

        return type("JobTrainer", (_habana.Corrections, GaudiTrainer), {})

    def update(self, trainer: Any) -> None:
        """GaudiTrainer's optimizer step. Gradients keep their memory, as graphs require."""
        if self.trainer != OPTIMUM:
            super().update(trainer)
            return
        model = trainer.model_wrapped
        if trainer.FusedNorm is None:
            trainer.accelerator.clip_grad_norm_(model.parameters(), trainer.args.max_grad_norm)
        else:
            trainer.FusedNorm.clip_norm(model.parameters())
        trainer.optimizer.step()
        trainer._zero_model_grad(model)

    def replays(self, trainer: Any) -> dict[str, int]:
        """How many passes the HPU graphs of training replayed, and how many they missed: the
        model's own pass runs once all graphs are taken. Empty for graphs that do not count."""
        cacher = getattr(vars(trainer.model).get("forward"), "__self__", None)
        if cacher is None:
            return {"replayed_passes": 0, "missed_passes": 0}
        if not (hasattr(cacher, "cached_hits_dict") and hasattr(cacher, "uncached_train_hits")):
            return {}
        replayed = sum(cacher.cached_hits_dict.values())
        return {"replayed_passes": replayed, "missed_passes": cacher.uncached_train_hits}

    def exchange(self, settings: Settings) -> Callable[[Any], None] | None:
        """Fast DDP's, as in GaudiTrainer's loop."""
        if settings.train.strategy != "fast_ddp":
            return None
        from optimum.habana.distributed import all_reduce_gradients

        return partial(all_reduce_gradients, use_hpu_graphs=True)

    def serve(self, model: Any, settings: Settings) -> Any:
        """The model for inference in `hpu.mode`; lazy passes are replayed as graphs if asked for.
        Raises UnsupportedError for precisions other than fp32 and bf16."""
        precision = settings.train.precision
        if precision not in ("fp32", "bf16"):
            reason = "is not available on hpu in inference (allowed: fp32, bf16)"
            raise UnsupportedError(f"train.precision: {precision} {reason}")
        placed = model.to(self.device)
        if settings.hpu.mode == "compile":
            import torch

            return torch.compile(placed, backend="hpu_backend")
        graphs = _habana.graphs_for_inference(settings.hpu)
        return self._hpu.wrap_in_hpu_graph(placed) if graphs else placed

    def end_of_step(self) -> None:
        """Submit the operations that lazy mode has collected."""
        if os.environ.get(LAZY_MODE) == "1":
            importlib.import_module("habana_frameworks.torch.core").mark_step()
