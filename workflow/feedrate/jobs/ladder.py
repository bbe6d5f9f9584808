"""Ladders: a cell that needs more than one that ran out of memory is not tried.

What the ladders are travels by an environment variable: it is no part of a run, so that one more
level of a ladder trains nothing else anew. Only what ran as it would run now shows anything: an
outcome of other settings, code or data does not count.
"""

import itertools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from feedrate.config.plan import LevelSettings, Project, study_settings
from feedrate.config.settings import Settings
from feedrate.config.spec import RunSpec
from feedrate.config.study import Study, adapt_keys
from feedrate.config.values import Level, cell_name
from feedrate.core import paths, variables
from feedrate.core.files import digest_value

# Ladders as jobs are told of them: what each level makes of a study's settings.

Parts = dict[str, dict[str, Any]]
"""Settings by part and key, as plain values."""
Ladder = dict[str, list[tuple[Level, Parts]]]
"""By factor its levels in order, each with all settings in which they differ."""


def ladders(project: Project) -> dict[str, dict[str, Ladder]]:
    """By study and device, of the studies that have a ladder."""
    return {
        name: {device: _ladder(project, name, device) for device in project.config.devices}
        for name, study in project.studies.items()
        if study.ladder
    }


def _ladder(project: Project, name: str, device: str) -> Ladder:
    study, entry = project.studies[name], project.devices[device]
    set_by = LevelSettings(study, adapt_keys(device, entry), project.config)
    common = study_settings(project, name, device)
    return {factor: _levels(study, factor, set_by, common) for factor in study.ladder}


def _levels(
    study: Study, factor: str, set_by: LevelSettings, common: Settings
) -> list[tuple[Level, Parts]]:
    levels = study.factors[factor].levels
    made: list[Parts] = [
        msgspec.to_builtins(set_by.of(common, {factor: level})) for level in levels
    ]
    first = made[0]
    differ = [
        (part, key)
        for part, values in first.items()
        for key, value in values.items()
        if any(other[part][key] != value for other in made)
    ]
    shown: list[Parts] = [{part: {} for part, _ in differ} for _ in made]
    for settings, whole in zip(shown, made, strict=True):
        for part, key in differ:
            settings[part][key] = whole[part][key]
    return list(zip(levels, shown, strict=True))


NOT_TRIED = "Not tried: "
"""How the cause of a pruned cell begins: it shows nothing of its own."""


class Made(NamedTuple):
    """What runs are made from beside their specs: digests of the measured code and of the data."""

    source: str
    data: str


class _Lesser(NamedTuple):
    """A cell that asks for less, with the settings in which it may differ."""

    cell: str
    levels: dict[str, Level]
    settings: list[Parts]


def not_tried(cell: str) -> str:
    """The cause of a cell that `cell` shows to be too large."""
    return f"{NOT_TRIED}{cell} ran out of memory, and this asks for no less."


def pruned_by(
    spec: RunSpec, made: Made, run: Path, environment: Mapping[str, str] = os.environ
) -> str | None:
    """The cell that ran out of memory and shows that this one would too; None where there is none.

    `run` is this run's folder. Cells of the same device that differ in nothing but the ladder's
    factors are looked at, and of these the ones that ask for no more in any of them.
    """
    lesser = _lesser(spec, environment)
    return next((less.cell for less in lesser if _ran_out(less, spec, made, run)), None)


def still_pruned(
    cause: str,
    spec: RunSpec,
    made: Made,
    run: Path,
    environment: Mapping[str, str] = os.environ,
) -> bool:
    """Whether the cell that `cause` says to have run out of memory still shows that."""
    lesser = _lesser(spec, environment)
    return any(not_tried(x.cell) == cause and _ran_out(x, spec, made, run) for x in lesser)


def _lesser(spec: RunSpec, environment: Mapping[str, str]) -> Iterator[_Lesser]:
    """The cells that ask for no more than this one in any factor of the ladder, least first."""
    told = json.loads(environment.get(variables.LADDERS) or "{}")
    ladder: Ladder = told.get(spec.study, {}).get(spec.device, {})
    if not ladder:
        return
    steps = []
    for factor, known in ladder.items():
        order = [level for level, _ in known]
        if spec.levels[factor] not in order:
            return
        steps.append(known[: order.index(spec.levels[factor]) + 1])
    for chosen in itertools.product(*steps):
        levels = spec.levels | dict(zip(ladder, (level for level, _ in chosen), strict=True))
        if levels != spec.levels:
            yield _Lesser(cell_name(levels), levels, [parts for _, parts in chosen])


def _ran_out(lesser: _Lesser, spec: RunSpec, made: Made, run: Path) -> bool:
    """Whether a run of the cell was tried and ran out of memory, and none trained."""
    outcomes = list(_outcomes(run.parent.parent / lesser.cell))
    if not any(outcome.get("status") == "out_of_memory" for _, outcome in outcomes):
        return False
    value = msgspec.to_builtins(spec) | {"cell": lesser.cell, "levels": lesser.levels}
    for parts in lesser.settings:
        for part, settings in parts.items():
            value["settings"][part] |= settings
    ended = {
        outcome.get("status")
        for repeat, outcome in outcomes
        if not str(outcome.get("cause", "")).startswith(NOT_TRIED)
        and (outcome.get("source_digest"), outcome.get("data_digest")) == made
        and outcome.get("spec_digest") == _digest(value, spec, repeat)
    }
    return "out_of_memory" in ended and "ok" not in ended


def _digest(value: dict[str, Any], spec: RunSpec, repeat: int) -> str:
    """The digest of a spec as that repeat of its cell has it: seeds rise with repeats."""
    return digest_value(value | {"repeat": repeat, "seed": spec.seed - spec.repeat + repeat})


def _outcomes(cell: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The cell's outcomes, each with the number of its repeat."""
    name = Path(paths.OUTCOME).name
    for path in cell.glob(f"rep*/{name}"):
        try:
            repeat = int(path.parent.name.removeprefix("rep"))
            outcome = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(outcome, dict):
            yield repeat, outcome
