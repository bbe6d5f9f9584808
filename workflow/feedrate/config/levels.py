"""What the levels of a cell make of a study's settings."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from feedrate.config.base import Level
from feedrate.config.resolve import level_settings, setting_type
from feedrate.config.settings import ModelSettings, Settings
from feedrate.config.study import Study
from feedrate.config.workflow import WorkflowConfig

_replace = msgspec.structs.replace


class Changes:
    """What each level of each factor of a study sets on a device: read and checked once, so that
    10,000 cells need no check of their own."""

    def __init__(self, study: Study, keys: Iterable[str], config: WorkflowConfig) -> None:
        """`keys` are those of the study's `adapt` that count on the device."""
        self._config = config
        keys = list(keys)
        self._of: dict[tuple[str, Level], list[tuple[str, str, Any]]] = {}
        for name, factor in study.factors.items():
            for level in factor.levels:
                self._of[name, level] = [
                    (*_split(sets), msgspec.convert(value, setting_type(sets)))
                    for sets, value in level_settings(study, name, level, keys).items()
                ]

    def settings(self, common: Settings, levels: Mapping[str, Level]) -> Settings:
        """The settings of one cell, from those that all cells share."""
        parts: dict[str, dict[str, Any]] = {}
        for factor, level in levels.items():
            for part, key, value in self._of[factor, level]:
                parts.setdefault(part, {})[key] = value
        new = {part: _replace(getattr(common, part), **values) for part, values in parts.items()}
        made: Settings = _replace(common, **new)
        if made.model.name == common.model.name:
            return made
        return _replace(made, model=self._with_own_weights(common.model, made.model))

    def _with_own_weights(self, first: ModelSettings, model: ModelSettings) -> ModelSettings:
        """A level's model, which is another than the study's `first`: that one's weights are not
        for it."""
        if model.checkpoint != first.checkpoint:
            return model
        if self._config.checkpoint_model != model.name:
            return _replace(model, checkpoint=None, revision=None)
        revision = self._config.checkpoint_revision
        return _replace(model, checkpoint=self._config.checkpoint, revision=revision)


def _split(sets: str) -> tuple[str, str]:
    """`loader.workers` as part and key."""
    part, _, key = sets.partition(".")
    return part, key
