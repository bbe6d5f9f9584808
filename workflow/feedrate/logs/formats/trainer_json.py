"""The JSON files of a Trainer: transformers 4.x and 5.x, and optimum-habana."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def metrics(folder: Path) -> dict[str, Any]:
    """The training's metrics.

    `train_results.json` takes precedence: the evaluation overwrites the memory figures of
    `all_results.json`.
    """
    values = _from_state(read_json(folder / "trainer_state.json"))
    for name in ("all_results.json", "train_results.json"):
        values |= read_json(folder / name)
    return values


def evaluations(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The metrics of each split: `validation_` is the prefix of optimum-habana's contrastive
    example, `eval_` and `predict_` are those of transformers."""
    for split, names in (("validation", ("validation", "eval")), ("test", ("test", "predict"))):
        for name in ("all", *names):
            yield split, read_json(folder / f"{name}_results.json")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; an empty one if the file is missing or holds something else."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _from_state(state: dict[str, Any]) -> dict[str, Any]:
    """The last entry of the log history that summarises the training."""
    history = state.get("log_history")
    entries = [e for e in history if isinstance(e, dict)] if isinstance(history, list) else []
    summary = next((e for e in reversed(entries) if "train_runtime" in e), {})
    flos = state.get("total_flos")
    return ({} if flos is None else {"total_flos": flos}) | summary
