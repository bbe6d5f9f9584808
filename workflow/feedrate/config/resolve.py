"""What a study says of settings: which a factor sets, and what is adapted for a device."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from feedrate.config.base import Level, level_text
from feedrate.config.device import Device
from feedrate.config.settings import Settings
from feedrate.config.study import Bundle, Study


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
