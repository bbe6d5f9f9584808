"""The JSON files of a Trainer: transformers 4.x and 5.x, and optimum-habana."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from feedrate.jobs.causes import cause_of
from feedrate.logs.reading import Found, load_json
from feedrate.logs.trainer import evaluation_figures

ORDER = 1
FILES = (
    "train_results.json",
    "all_results.json",
    "trainer_state.json",
    "validation_results.json",
    "eval_results.json",
    "test_results.json",
    "predict_results.json",
)
IMPORTS = ("*_results.json", "trainer_state.json")
SHARED = ("epoch", "memory_allocated (GB)", "max_memory_allocated (GB)")
"""Keys of all_results.json that every split writes, so the last one's are left."""


def read(path: Path) -> Iterator[Found]:
    """The run of one of these files."""
    values, name, note = load_json(path), path.name, ""
    evaluation: dict[str, float] = {}
    for split in ("validation", "test"):
        evaluation |= evaluation_figures(split, values)
    if name == "trainer_state.json":
        yield _of_state(values)
        return
    if name == "all_results.json" and evaluation and any(key in values for key in SHARED[1:]):
        values = {key: value for key, value in values.items() if key not in SHARED}
        note = "memory figures left out: an evaluation has overwritten them"
    trained = name in ("train_results.json", "all_results.json")
    yield Found(
        metrics=values if trained else {},
        evaluation=evaluation,
        cause=cause_of([json.dumps(values)] if trained else ()),
        order=0 if name == "train_results.json" else 1,
        note=note,
    )


def _of_state(state: dict[str, Any]) -> Found:
    """The run of a trainer_state.json: the figures are those of the last entry of its log history
    that summarises the training."""
    history = state.get("log_history")
    entries = history if isinstance(history, list) else []
    summaries = [e for e in entries if isinstance(e, dict) and "train_runtime" in e]
    flos = {} if state.get("total_flos") is None else {"total_flos": state["total_flos"]}
    metrics = flos | (summaries[-1] if summaries else {})
    return Found(metrics=metrics, cause=cause_of(map(str, entries)), order=2)
