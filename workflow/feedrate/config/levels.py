"""What the levels of a cell make of a study's settings."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from feedrate.config.base import Level, level_text
from feedrate.config.devices import Device
from feedrate.config.settings import ModelSettings, Settings
from feedrate.config.study import Bundle, Study
from feedrate.config.workflow import WorkflowConfig

# What a study says of settings: which a factor sets, and what is adapted for a device.


def setting_type(sets: str) -> Any:
    """The type of the setting that a factor sets, `loader.workers`; None if there is none."""
    part, _, key = sets.partition(".")
    return _fields(_fields(Settings).get(part)).get(key)


def level_settings(study: Study, name: str, level: Level, keys: Iterable[str] = ()) -> Bundle:
    """The settings that a level of the factor `name` sets, with their values.

    A bundle that the study adapts for one of `keys` takes the place of the factor's own.
    """
    factor = study.factors[name]
    if factor.sets:
        return {factor.sets: level}
    bundle = factor.bundles.get(level_text(level), {})
    for key in keys:
        bundle = adapted_bundles(study, key).get(name, {}).get(level_text(level), bundle)
    return bundle


def adapted_bundles(study: Study, key: str) -> dict[str, dict[str, Bundle]]:
    """The bundles, by factor and level, that are others on a kind or device; not checked."""
    return study.adapt.get(key, {}).get("bundles") or {}


def all_settings() -> Iterator[str]:
    """Every setting that a factor can set, as `loader.workers`."""
    for part, kind in _fields(Settings).items():
        yield from (f"{part}.{key}" for key in _fields(kind))


def adapt_keys(name: str, device: Device) -> list[str]:
    """The keys of a study's `adapt` that count on a device, later ones over earlier ones."""
    return [key for key in (device.kind, device.variant_of, name) if key]


def adapted(value: Any, study: Study, part: str, keys: Iterable[str]) -> dict[str, Any]:
    """`value` (a study's settings or protocol, which `part` names) with what the study adapts for
    these kinds and devices, later ones over earlier ones; not checked."""
    result: dict[str, Any] = msgspec.to_builtins(value)
    for key in keys:
        result = _merged(result, study.adapt.get(key, {}).get(part) or {})
    return result


@cache
def _fields(kind: Any) -> dict[str, Any]:
    return {f.name: f.type for f in msgspec.structs.fields(kind)} if kind else {}


def _merged(base: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `changes` laid over it, mappings within mappings."""
    both = {
        key: _merged(base[key], value)
        if isinstance(value, dict) and isinstance(base.get(key), dict)
        else value
        for key, value in changes.items()
    }
    return {**base, **both}


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
