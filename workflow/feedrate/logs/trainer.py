"""The figures that a Trainer reports about its own training, from files of any format, and the text
of logs: numbers, access tokens to hide, warnings of optimum-habana."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from feedrate.config.values import Strict, about
from feedrate.core.scrub import hide_secrets

LIMIT_BYTES = 8 * 2**20
"""Of a longer log, the first and the last half of this are read."""
MAX_CHARS = 300  # of a cause

_PREFIXES = {"validation": ("eval_", "validation_"), "test": ("test_", "predict_")}
_DURATION = re.compile(r"(?:(\d{1,6}) days?, )?(\d{1,6}):(\d\d):(\d\d(?:\.\d+)?)")
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


def trainer_figures(metrics: Mapping[str, Any], library: str = "") -> TrainerFigures:
    """The Trainer's figures from its metrics.

    Rates are taken as reported and never computed from `train_runtime`, which includes warm-up and
    graph compilation. optimum-habana's "(GB)" are bytes / 1024^3, so GiB.
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


def evaluation_figures(split: str, metrics: Mapping[str, Any]) -> dict[str, float]:
    """Finite figures of one evaluation as `eval_*` (validation) or `predict_*` (test), without
    optimum-habana's `*_end_time`, which is a moment."""
    ours = "eval_" if split == "validation" else "predict_"
    return {
        ours + key.partition("_")[2]: figure
        for key, value in metrics.items()
        if key.startswith(_PREFIXES.get(split, ())) and not key.endswith("_end_time")
        if (figure := number(value)) is not None
    }


def number(value: object) -> float | None:
    """A finite number, or None: transformers 5.x prints numbers as text, 4.x as numbers.

    Durations such as `0:01:02.50` or `1 day, 0:00:00` become seconds.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and (duration := _DURATION.fullmatch(value.strip())):
        days, hours, minutes, seconds = (float(part or 0) for part in duration.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    try:
        result = float(value)
    except (ValueError, OverflowError):
        return None
    return result if math.isfinite(result) else None


def one_line(text: str) -> str:
    """`text` on one line, at most MAX_CHARS long, without access tokens."""
    text = hide_secrets(" ".join(text.split()))
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"


def read_log(path: Path) -> str:
    """The text of a log; bytes that are not UTF-8 are replaced. Empty if there is no log."""
    try:
        with path.open("rb") as stream:
            head = stream.read(LIMIT_BYTES // 2)
            size = stream.seek(0, 2)
            stream.seek(max(len(head), size - LIMIT_BYTES // 2))
            tail = stream.read()
    except OSError:
        return ""
    return (head + tail).decode("utf-8", errors="replace")


def fallback_reason(text: str) -> str | None:
    """Why optimum-habana's on-device loader fell back to the host's, with one warning; None if it
    did not. Such a run is invalid."""
    found = _FALLBACK.search(text)
    return (found[1].strip().rstrip(".") or "no reason given") if found else None
