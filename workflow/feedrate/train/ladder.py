"""Ladders: a cell that needs more than one that ran out of memory is not tried.

What the ladders are travels by an environment variable: it is no part of a run, so that one more
level of a ladder trains nothing else anew.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from feedrate import paths, variables
from feedrate.config.base import BETWEEN_LEVELS, level_text
from feedrate.config.settings import RunSpec
from feedrate.config.study import Study

NOT_TRIED = "Not tried: "
"""How the cause of a pruned cell begins: it shows nothing of its own."""


def ladders(studies: Mapping[str, Study]) -> str:
    """The variable's value."""
    return json.dumps(
        {
            name: {
                f: [level_text(level) for level in study.factors[f].levels] for f in study.ladder
            }
            for name, study in studies.items()
            if study.ladder
        }
    )


def pruned_by(spec: RunSpec, run: Path, environment: Mapping[str, str] = os.environ) -> str | None:
    """The cell that ran out of memory and shows that this one would too; None where there is none.

    `run` is this run's folder. Cells of the same device that differ in nothing but the ladder's
    factors are looked at, and of these the ones that ask for no more in any of them.
    """
    order = json.loads(environment.get(variables.LADDERS, "{}")).get(spec.study, {})
    if not order:
        return None
    mine = {factor: level_text(level) for factor, level in spec.levels.items()}
    for folder in sorted(run.parent.parent.iterdir()):
        levels = dict(part.partition("=")[::2] for part in folder.name.split(BETWEEN_LEVELS))
        if _asks_for_less(levels, mine, order) and _ran_out(folder):
            return folder.name
    return None


def _asks_for_less(
    levels: Mapping[str, str], mine: Mapping[str, str], order: Mapping[str, list[str]]
) -> bool:
    if levels.keys() != mine.keys() or levels == mine:
        return False
    for factor, level in levels.items():
        steps = order.get(factor)
        if steps is None:
            if level != mine[factor]:
                return False
        elif level not in steps or steps.index(level) > steps.index(mine[factor]):
            return False
    return True


def _ran_out(cell: Path) -> bool:
    """Whether a run of the cell was tried and ran out of memory, and none trained."""
    ended = {
        outcome.get("status")
        for outcome in _outcomes(cell)
        if not str(outcome.get("cause", "")).startswith(NOT_TRIED)
    }
    return "out_of_memory" in ended and "ok" not in ended


def _outcomes(cell: Path) -> Iterator[dict[str, Any]]:
    name = Path(paths.OUTCOME).name
    for path in cell.glob(f"rep*/{name}"):
        try:
            outcome = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(outcome, dict):
            yield outcome
