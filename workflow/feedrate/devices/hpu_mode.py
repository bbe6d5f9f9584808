"""How a process is set up for Gaudi's software before any of it is loaded; imports none of it."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from feedrate.config.settings import HpuSettings
from feedrate.config.spec import RunSpec
from feedrate.core.files import write_text
from feedrate.devices.base import BF16_AUTOCAST, UnsupportedError

LAZY_MODE = "PT_HPU_LAZY_MODE"
BF16_OPS = "PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST"
FP32_OPS = "PT_HPU_AUTOCAST_FP32_OPS_LIST"


def prepare(spec: RunSpec, folder: Path) -> None:
    """Set this process's environment as `spec` asks; lists of operations are files in `folder`.

    To be called before torch is imported, which may load the Gaudi software by itself. Raises
    UnsupportedError where settings do not go together.
    """
    check(spec)
    hpu = spec.settings.hpu
    os.environ |= environment(hpu)
    if hpu.autocast_bf16_ops:
        lists = {BF16_OPS: hpu.autocast_bf16_ops, FP32_OPS: hpu.autocast_fp32_ops}
        for variable, operations in lists.items():
            path = folder / f"{variable.lower()}.txt"
            write_text(path, "".join(f"{operation}\n" for operation in operations))
            os.environ[variable] = str(path)
    # optimum-habana asks `pip list` for the plugin's version: it must be this interpreter's pip.
    os.environ["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    )


def environment(hpu: HpuSettings) -> dict[str, str]:
    """The variables that the Gaudi software reads when it is loaded.

    The mode is always told: the software's default has changed from lazy to eager.
    """
    return {LAZY_MODE: "1" if hpu.mode == "lazy" else "0"}


def lazy_mode() -> bool:
    """Whether this process gathers operations into graphs."""
    return os.environ.get(LAZY_MODE) == "1"


def graphs_for_inference(hpu: HpuSettings) -> bool:
    """Whether evaluation replays graphs: as asked for, else wherever the mode has them."""
    asked = hpu.hpu_graphs_for_inference
    return hpu.mode == "lazy" if asked is None else asked


def check(spec: RunSpec) -> None:
    """Raise UnsupportedError with the first of the settings that do not go together."""
    for sentence in _conflicts(spec):
        raise UnsupportedError(sentence)


def _conflicts(spec: RunSpec) -> Iterator[str]:
    hpu, train = spec.settings.hpu, spec.settings.train
    yield from _wrong_mode(spec)
    if hpu.hpu_graphs_for_training and spec.count > 1 and train.strategy != "fast_ddp":
        yield (
            f"hpu.hpu_graphs_for_training: true on {spec.count} devices needs "
            f"train.strategy: fast_ddp, not {train.strategy}"
        )
    if hpu.fused_adam and train.optimizer != "adamw_torch":
        yield (
            f"train.optimizer: {train.optimizer} has no effect beside hpu.fused_adam: true; "
            "set that to false"
        )
    if bool(hpu.autocast_bf16_ops) != bool(hpu.autocast_fp32_ops):
        yield "hpu.autocast_bf16_ops and hpu.autocast_fp32_ops are given together, or neither is"
    if hpu.autocast_bf16_ops and train.precision not in BF16_AUTOCAST:
        yield f"hpu.autocast_bf16_ops needs train.precision: bf16, not {train.precision}"
    if hpu.minimize_memory and train.precision != "fp8":
        yield f"hpu.minimize_memory: true needs train.precision: fp8, not {train.precision}"


def _wrong_mode(spec: RunSpec) -> Iterator[str]:
    """Settings that only one mode knows."""
    hpu = spec.settings.hpu
    wanted = {
        "hpu.hpu_graphs_for_training: true": (hpu.hpu_graphs_for_training, "lazy"),
        "hpu.hpu_graphs_for_inference: true": (hpu.hpu_graphs_for_inference, "lazy"),
        "hpu.pipelining_fwd_bwd: true": (hpu.pipelining_fwd_bwd, "lazy"),
        "hpu.use_dynamic_shapes: true": (hpu.use_dynamic_shapes, "lazy"),
        # It packs the gradients by a graph, whatever else is set.
        "train.strategy: fast_ddp": (spec.settings.train.strategy == "fast_ddp", "lazy"),
        "hpu.use_compiled_autograd: true": (hpu.use_compiled_autograd, "compile"),
        "hpu.use_regional_compilation: true": (hpu.use_regional_compilation, "compile"),
    }
    for setting, (asked, mode) in wanted.items():
        if asked and hpu.mode != mode:
            yield f"{setting} needs hpu.mode: {mode}, not {hpu.mode}"
