"""The JSON files of a Trainer: transformers 4.x and 5.x, and optimum-habana."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from feedrate.jobs.causes import cause_of
from feedrate.logs.found import Found, load_json
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
        history = values.get("log_history")
        cause = cause_of(map(str, history if isinstance(history, list) else ()))
        yield Found(metrics=_from_state(values), cause=cause, order=2)
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


def _from_state(state: dict[str, Any]) -> dict[str, Any]:
    """The last entry of the log history that summarises the training."""
    history = state.get("log_history")
    entries = [e for e in history if isinstance(e, dict)] if isinstance(history, list) else []
    summary = next((e for e in reversed(entries) if "train_runtime" in e), {})
    flos = state.get("total_flos")
    return ({} if flos is None else {"total_flos": flos}) | summary
