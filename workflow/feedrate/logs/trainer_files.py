"""The JSON files of a Trainer (transformers 4.x, 5.x and optimum-habana), in one folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from feedrate.config.values import Strict
from feedrate.logs.text import number

TRAIN_FILES = ("train_results.json", "all_results.json")
"""In order of trust: the evaluation overwrites the memory figures of all_results.json."""
EVALUATION_FILES = {
    "validation": ("validation_results.json", "eval_results.json"),
    "test": ("test_results.json", "predict_results.json"),
}
"""`validation_` is optimum-habana's contrastive example, `eval_` and `predict_` transformers'."""
STATE_FILE = "trainer_state.json"

_PREFIXES = {"validation": ("eval_", "validation_"), "test": ("test_", "predict_")}
_OURS = {"validation": "eval_", "test": "predict_"}


class TrainerFigures(Strict, kw_only=True):
    """What the Trainer says of itself; kept beside our figures, never mixed with them."""

    samples_per_s: float | None = None
    steps_per_s: float | None = None
    runtime_s: float | None = None
    loss: float | None = None
    total_flos: float | None = None
    memory_gib: float | None = None
    peak_memory_gib: float | None = None
    library: Annotated[str, Meta(description="transformers or optimum-habana, with version.")] = ""


def figures(metrics: Mapping[str, object], library: str = "") -> TrainerFigures:
    """What a Trainer says of its training, from metrics under its own keys.

    optimum-habana's "(GB)" are bytes / 1024^3, so GiB.
    """
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


def evaluation_figures(split: str, metrics: Mapping[str, object]) -> dict[str, float]:
    """An evaluation's finite figures as eval_* (validation) or predict_* (test).

    optimum-habana's `*_end_time` is a moment, not a figure.
    """
    values: dict[str, float] = {}
    for key, value in metrics.items():
        if key.endswith("_end_time"):
            continue
        prefix = next((p for p in _PREFIXES.get(split, ()) if key.startswith(p)), None)
        figure = number(value)
        if prefix and figure is not None:
            values[_OURS[split] + key.removeprefix(prefix)] = figure
    return values


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or an empty one where the file is missing or holds something else."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def train_metrics(folder: Path) -> dict[str, Any]:
    """The training's metrics from a Trainer's JSON files; each key from the most trusted file."""
    metrics = _from_state(read_json(folder / STATE_FILE))
    for name in reversed(TRAIN_FILES):
        metrics |= read_json(folder / name)
    return metrics


def read_evaluations(folder: Path) -> dict[str, float]:
    """All evaluation figures of a Trainer's folder as eval_* and predict_*."""
    combined = read_json(folder / "all_results.json")
    values: dict[str, float] = {}
    for split, names in EVALUATION_FILES.items():
        for metrics in (combined, *(read_json(folder / name) for name in names)):
            values |= evaluation_figures(split, metrics)
    return values


def _from_state(state: dict[str, Any]) -> dict[str, Any]:
    """The last entry of the log history that sums the training up."""
    history = state.get("log_history")
    entries = [e for e in history if isinstance(e, dict)] if isinstance(history, list) else []
    summary = next((e for e in reversed(entries) if "train_runtime" in e), {})
    flos = state.get("total_flos")
    return ({} if flos is None else {"total_flos": flos}) | summary
