"""Ladders as jobs are told of them: what each level makes of a study's settings."""

from typing import Any

import msgspec

from feedrate.config.base import Level
from feedrate.config.levels import Changes
from feedrate.config.plan import Project, study_settings
from feedrate.config.resolve import adapt_keys
from feedrate.config.settings import Settings
from feedrate.config.study import Study

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
    changes = Changes(study, adapt_keys(device, entry), project.config)
    common = study_settings(project, name, device)
    return {factor: _levels(study, factor, changes, common) for factor in study.ladder}


def _levels(
    study: Study, factor: str, changes: Changes, common: Settings
) -> list[tuple[Level, Parts]]:
    levels = study.factors[factor].levels
    made: list[Parts] = [
        msgspec.to_builtins(changes.settings(common, {factor: level})) for level in levels
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
