"""What the Trainer says about its own training, read from its files: JSON of transformers 4.x, 5.x
and optimum-habana, events of TensorBoard; and what a job printed."""

import json
import math
import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from feedrate.config.values import Strict, about
from feedrate.core.secrets import hide_secrets
from feedrate.jobs.events import Trainer

MAX_CHARS = 300  # length of a cause
TRAINING, STATE, EVENTS = "*_results.json", "trainer_state.json", "**/events.out.tfevents.*"
FILES = (TRAINING, STATE, EVENTS)  # the files that are read, in the Trainer's folder
MEMORY, PEAK_MEMORY = "memory_allocated (GB)", "max_memory_allocated (GB)"
"""optimum-habana's figures of memory. Its "(GB)" are bytes / 1024^3, so GiB."""

_SPLITS = {"eval": "eval", "validation": "eval", "test": "predict", "predict": "predict"}
"""The first words of the Trainer's figures of evaluations, and ours."""
_FALLBACK = re.compile(r"Using Pytorch native dataloader because:[ \t]*(.{0,500})")


class TrainerFigures(Strict, kw_only=True):
    """The Trainer's own figures; they are kept apart from ours and never mixed with them."""

    samples_per_s: float | None = None
    steps_per_s: float | None = None
    runtime_s: float | None = None
    loss: float | None = None
    total_flos: float | None = None
    memory_gib: float | None = None
    peak_memory_gib: float | None = None
    library: Annotated[str, about("transformers or optimum-habana, with version.")] = ""


def read_trainer(folder: Path, event: Trainer | None = None) -> TrainerFigures:
    """The Trainer's figures from its event or, where that lacks one, from the files in its folder.
    Rates are as reported: the runtime includes warm-up and graph compilation."""
    metrics = {"total_flos": _load(folder / STATE).get("total_flos")}  # of optimum-habana
    metrics |= _load(folder / "train_results.json") | (event.metrics if event else {})
    if "train_runtime" not in metrics:
        for path in sorted(folder.glob(EVENTS), reverse=True):  # their names have their time
            scalars = read_scalars(path).items()
            metrics = {tag.removeprefix("train/"): value for tag, value in scalars} | metrics
    return TrainerFigures(
        samples_per_s=number(metrics.get("train_samples_per_second")),
        steps_per_s=number(metrics.get("train_steps_per_second")),
        runtime_s=number(metrics.get("train_runtime")),
        loss=number(metrics.get("train_loss")),
        total_flos=number(metrics.get("total_flos")),
        memory_gib=number(metrics.get(MEMORY)),
        peak_memory_gib=number(metrics.get(PEAK_MEMORY)),
        library=event.library if event else "",
    )


def read_evaluations(folder: Path) -> dict[str, float]:
    """The finite figures of evaluations in a Trainer's JSON files, as `eval_*` (validation) and
    `predict_*` (test), without optimum-habana's `*_end_time`, which is a moment."""
    figures = {}
    for path in sorted(folder.glob(TRAINING)):
        for key, value in _load(path).items():
            word, _, name = key.partition("_")
            figure = number(value)
            if word in _SPLITS and figure is not None and not key.endswith("_end_time"):
                figures[f"{_SPLITS[word]}_{name}"] = figure
    return figures


def not_finite(folder: Path) -> list[str]:
    """The losses, and norms of gradients, that are NaN or infinite in a Trainer's JSON files."""
    history = _load(folder / STATE).get("log_history")
    entries = history if isinstance(history, list) else []
    entries += map(_load, sorted(folder.glob(TRAINING)))
    wrong = {}
    for entry in entries:
        for name, value in entry.items() if isinstance(entry, dict) else ():
            is_checked = name.endswith(("loss", "grad_norm")) and value is not None
            if is_checked and number(value) is None:
                wrong[name] = value
    return list(wrong)


def _load(path: Path) -> dict[str, Any]:
    """A JSON object; empty if there is none."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def read_scalars(path: Path) -> dict[str, float]:
    """The last finite value by tag of one file, up to where it is damaged."""
    # tensorboard is slow to import: only when needed
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util.tensor_util import make_ndarray

    scalars: dict[str, float] = {}
    with suppress(DecodeError, ValueError, TypeError, OSError):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "scalars":
                    figure = number(float(make_ndarray(value.tensor).item()))
                    if figure is not None:
                        scalars[value.tag] = figure
    return scalars


def number(value: object) -> float | None:
    """A finite number, or None: transformers 5.x writes numbers as text, 4.x as numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        result = float(value)
    except (ValueError, OverflowError):
        return None
    return result if math.isfinite(result) else None


def one_line(text: str) -> str:
    """`text` on one line, at most MAX_CHARS long, without access tokens."""
    text = hide_secrets(" ".join(text.split()))
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"


def fallback_warning(text: str) -> str:
    """The only warning with which optimum-habana's on-device loader falls back to the host's, and
    its reason; empty if it did not. Such a run is invalid."""
    match = _FALLBACK.search(text)
    return match[0].strip().rstrip(".") if match else ""
