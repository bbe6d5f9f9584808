"""What a Trainer reports about its own training, in whatever format it left it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from msgspec import Meta

from feedrate.config.values import Strict
from feedrate.core import plugins
from feedrate.logs.text import number

FORMATS = "feedrate.logs.formats"
_PREFIXES = {"validation": ("eval_", "validation_"), "test": ("test_", "predict_")}


class TrainerFigures(Strict, kw_only=True):
    """The Trainer's own figures; they are kept apart from ours and never mixed with them."""

    samples_per_s: float | None = None
    steps_per_s: float | None = None
    runtime_s: float | None = None
    loss: float | None = None
    total_flos: float | None = None
    memory_gib: float | None = None
    peak_memory_gib: float | None = None
    library: Annotated[str, Meta(description="transformers or optimum-habana, with version.")] = ""


def read_trainer(
    folder: Path, library: str = "", known: Mapping[str, Any] | None = None
) -> TrainerFigures:
    """The Trainer's figures from the files in `folder`: a run of ours or a published one.

    `known` metrics take precedence. Formats are read in their order until one of them has the
    runtime. Rates are taken as reported and never computed from `train_runtime`, which includes
    warm-up and graph compilation.
    """
    known = known or {}
    metrics: dict[str, Any] = {}
    for log_format in _formats():
        metrics = log_format.metrics(folder) | metrics
        if "train_runtime" in {**metrics, **known}:
            break
    return figures({**metrics, **known}, library)


def figures(metrics: Mapping[str, Any], library: str = "") -> TrainerFigures:
    """A Trainer's metrics under our names. optimum-habana's "(GB)" are bytes / 1024^3, so GiB."""
    return TrainerFigures(
        samples_per_s=number(metrics.get("train_samples_per_second")),
        steps_per_s=number(metrics.get("train_steps_per_second")),
        runtime_s=number(metrics.get("train_runtime")),
        loss=number(metrics.get("train_loss")),
        total_flos=number(metrics.get("total_flos")),
        memory_gib=number(metrics.get("memory_allocated (GB)")),
        peak_memory_gib=number(metrics.get("max_memory_allocated (GB)")),
        library=library,
    )


def read_evaluations(folder: Path) -> dict[str, float]:
    """All evaluation figures in a Trainer's folder as `eval_*` and `predict_*`."""
    values: dict[str, float] = {}
    for log_format in _formats():
        if hasattr(log_format, "evaluations"):
            for split, metrics in log_format.evaluations(folder):
                values |= evaluation_figures(split, metrics)
    return values


def evaluation_figures(split: str, metrics: Mapping[str, Any]) -> dict[str, float]:
    """Finite figures of one evaluation as `eval_*` (validation) or `predict_*` (test).

    optimum-habana's `*_end_time` is a moment, not a figure.
    """
    ours = "eval_" if split == "validation" else "predict_"
    values: dict[str, float] = {}
    for key, value in metrics.items():
        prefix = next((p for p in _PREFIXES.get(split, ()) if key.startswith(p)), None)
        figure = number(value)
        if prefix and figure is not None and not key.endswith("_end_time"):
            values[ours + key.removeprefix(prefix)] = figure
    return values


def files(folder: Path) -> Iterator[Path]:
    """The files in a Trainer's folder that the formats read."""
    for patterns in plugins.declared(FORMATS, "FILES").values():
        for pattern in patterns:
            yield from folder.glob(pattern)


def _formats() -> Iterator[ModuleType]:
    """The formats in their order. They import nothing heavy before they are used."""
    order = plugins.declared(FORMATS, "ORDER")
    for name in sorted(order, key=lambda name: order[name]):
        yield plugins.load(FORMATS, name)
