"""References inside a study, and from it to devices and files: what the types cannot see."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from feedrate.config.base import Level, level_text
from feedrate.config.devices import Device
from feedrate.config.levels import adapt_keys, adapted, all_settings, level_settings, setting_type
from feedrate.config.load import Findings, numbered, parse_level, problems
from feedrate.config.settings import Settings, StudyProtocol
from feedrate.config.study import FIGURES, TABLES, Bundle, Factor, Figure, Study, Table
from feedrate.core import plugins

KINDS = plugins.names("feedrate.devices.kinds")
TAKEN = (
    *("study", "device", "cell", "repeat", "status", "cause", "model", "samples_per_s", "mfu"),
    *("step_time_median_s", "data_wait_share", "peak_memory_gib", "trainer_samples_per_s"),
)
"""Columns of the results; the factors' own columns stand beside them."""
_LEVEL = re.compile(r"[A-Za-z0-9_.+-]+")
_LONGEST_CELL = 200
"""Characters of a cell's name: it is a folder's name, which file systems limit to 255 bytes."""


def check_study(
    origin: str, study: Study, devices: Mapping[str, Device], files: Iterable[str]
) -> list[str]:
    """A study in itself, against the registry of devices and the `files` in config/published."""
    found = Findings(origin)
    levels = _check_factors(found, study, devices)
    _check_levels(found, "baseline", study.baseline, levels)
    _check_adapt(found, study, devices)
    for number, exclude in enumerate(study.exclude):
        if not exclude.levels:
            found.say(f"exclude[{number}].levels", "it must not be empty")
        if exclude.unless_able is not None:
            able = sorted({name for device in devices.values() for name in device.capabilities})
            key = f"exclude[{number}].unless_able"
            found.known(key, exclude.unless_able, able, "capabilities of the devices")
        _check_levels(found, f"exclude[{number}].levels", exclude.levels, levels)
        for name, kept in exclude.unless.items():
            for level in kept:
                _check_levels(found, f"exclude[{number}].unless", {name: level}, levels)
    for part, names in (("within", study.within), ("ladder", study.ladder)):
        for number, name in enumerate(names):
            found.known(f"{part}[{number}]", name, study.factors, "factors")
    files = list(files)
    for part in ("published", "published_scores"):
        for number, file in enumerate(getattr(study, part)):
            found.known(f"{part}[{number}]", file, files, "files in config/published")
        found.unique(numbered(f"{part}[{{}}]", getattr(study, part)))
    parts: dict[str, Sequence[Table | Figure]] = {TABLES: study.tables, FIGURES: study.figures}
    for package, entries in parts.items():
        part = package.rpartition(".")[2]
        found.unique(numbered(f"{part}[{{}}].name", [entry.name for entry in entries]))
        for number, entry in enumerate(entries):
            found.known(f"{part}[{number}].kind", entry.kind, plugins.names(package), "allowed")
    for number, table in enumerate(study.tables):
        for index, column in enumerate(table.columns):
            _check_levels(found, f"tables[{number}].columns[{index}]", column, levels)
        if table.factor is not None:
            found.known(f"tables[{number}].factor", table.factor, study.factors, "factors")
    for number, figure in enumerate(study.figures):
        if figure.x is not None:
            found.known(f"figures[{number}].x", figure.x, study.factors, "factors")
    found.unique(numbered("claims[{}].id", [claim.id for claim in study.claims]))
    for number, claim in enumerate(study.claims):
        if claim.edition:
            editions = study.source.editions
            found.known(f"claims[{number}].edition", claim.edition, editions, "source.editions")
    return found


def check_captions(studies: Mapping[str, Study]) -> list[str]:
    """Pages of one name in several studies have one caption, since they are made by one rule."""
    wrong: list[str] = []
    first: dict[tuple[str, str], tuple[str, str]] = {}
    for name, study in studies.items():
        parts: dict[str, Sequence[Table | Figure]]
        parts = {"tables": study.tables, "figures": study.figures}
        for part, pages in parts.items():
            for number, page in enumerate(pages):
                other, caption = first.setdefault((part, page.name), (name, page.caption))
                if page.caption != caption:
                    wrong.append(
                        f"config/studies/{name}.yaml: {part}[{number}].name: {page.name!r} is not "
                        f"allowed with the caption {page.caption}; the study {other} has it with "
                        f"{caption}"
                    )
    return wrong


def _check_factors(
    found: Findings, study: Study, devices: Mapping[str, Device]
) -> dict[str, list[Level]]:
    """Settings, levels, capabilities and baselines of all factors.

    Returns the levels of each factor, none where they are wrong: others are not held to them.
    """
    able = sorted({name for device in devices.values() for name in device.capabilities})
    levels: dict[str, list[Level]] = {}
    for name, factor in study.factors.items():
        key, before = f"factors.{name}", len(found)
        if name in TAKEN:
            found.say(key, f"{name!r} is a column of the results already; choose another name")
        if bool(factor.sets) == bool(factor.bundles):
            found.say(key, "it needs either `sets` (one setting) or `bundles` (settings by level)")
        elif factor.bundles:
            _check_bundles(found, key, factor)
        elif setting_type(factor.sets) is None:
            found.known(f"{key}.sets", factor.sets, all_settings(), "settings")
        else:
            _check_factor_levels(found, f"{key}.levels", factor)
        levels[name] = factor.levels if len(found) == before else []
        texts = [level_text(level) for level in factor.levels]
        for level, capability in factor.requires.items():
            if levels[name]:
                found.known(f"{key}.requires", level, texts, "its levels")
            found.known(f"{key}.requires.{level}", capability, able, "capabilities of the devices")
        if study.task == "training" and any(
            sets.startswith("inference.") for sets in _settings_of(study, name)
        ):
            found.say(key, "it sets what only `task: inference` has, and this study trains")
        if name not in study.baseline:
            found.say(f"baseline.{name}", f"missing, but required; its levels: {', '.join(texts)}")
    found.unique(
        (f"factors.{name}.{'sets' if f.sets else 'bundles'}", sets)
        for name, f in study.factors.items()
        for sets in _settings_of(study, name)
    )
    longest = sum(
        len(name) + 2 + max(len(level_text(level)) for level in factor.levels)
        for name, factor in study.factors.items()
    )
    if longest > _LONGEST_CELL:
        found.say("factors", f"names and levels make cell names longer than {_LONGEST_CELL}")
    return levels


def _check_bundles(found: Findings, key: str, factor: Factor) -> None:
    """Each level has its bundle, of settings that there are, with values that fit them."""
    texts = [level_text(level) for level in factor.levels]
    for level in texts:
        if level not in factor.bundles:
            found.say(f"{key}.bundles.{level}", "missing, but required; {} sets nothing")
    _check_bundle_settings(found, f"{key}.bundles", factor.bundles, texts)
    _check_level_texts(found, f"{key}.levels", factor, str)


def _check_bundle_settings(
    found: Findings, key: str, bundles: Mapping[str, Mapping[str, Any]], levels: list[str]
) -> None:
    """Bundles of known levels, of settings that there are, with values that fit them."""
    for level, bundle in bundles.items():
        place = f"{key}.{level}"
        found.known(key, level, levels, "its levels")
        for sets, value in bundle.items():
            if setting_type(sets) is None:
                found.known(place, sets, all_settings(), "settings")
            else:
                found += problems(value, setting_type(sets), found.origin, f"{place}.{sets}")


def _settings_of(study: Study, name: str) -> list[str]:
    """All settings that the levels of a factor set, on any device, each once."""
    levels = study.factors[name].levels
    return list(
        dict.fromkeys(
            sets
            for key in ("", *study.adapt)
            for level in levels
            for sets in level_settings(study, name, level, [key])
        )
    )


def _check_factor_levels(found: Findings, key: str, factor: Factor) -> None:
    """Each level must fit the setting, and its text a folder's name."""
    _check_level_texts(found, key, factor, setting_type(factor.sets))


def _check_level_texts(found: Findings, key: str, factor: Factor, kind: Any) -> None:
    """Each level must be of `kind`, fit a folder's name, and what its text is read as again."""
    for number, level in enumerate(factor.levels):
        place, text = f"{key}[{number}]", level_text(level)
        wrong = problems(level, kind, found.origin, place)
        found += wrong
        if not wrong and not _LEVEL.fullmatch(text):
            found.say(
                place,
                f"{text!r} is not allowed; it names folders and may have letters, digits, _ . + -",
            )
        elif not wrong and isinstance(level, str) and parse_level(text) != level:
            found.say(place, f"{text!r} is not allowed; as text it cannot be told from a value")
    found.unique(numbered(f"{key}[{{}}]", factor.levels))


def _check_adapt(found: Findings, study: Study, devices: Mapping[str, Device]) -> None:
    """What is adapted must fit alone, and the protocol that results for each device too."""
    parts: dict[str, Any] = {
        "settings": (study.settings, Settings),
        "protocol": (study.protocol, StudyProtocol),
    }
    for key, change in study.adapt.items():
        found.known("adapt", key, [*KINDS, *devices], "kinds and devices")
        for part in change:
            if not found.known(f"adapt.{key}", part, [*parts, "bundles"], "parts"):
                continue
            if part == "bundles":
                _check_adapted_bundles(found, f"adapt.{key}.bundles", study, change[part])
            else:
                value, kind = parts[part]
                place = f"adapt.{key}.{part}"
                found += problems(change[part], dict, found.origin, place) or problems(
                    adapted(value, study, part, [key]), kind, found.origin, place
                )
    if found:
        return
    _check_windows(found, study, devices)


def _check_adapted_bundles(found: Findings, key: str, study: Study, bundles: Any) -> None:
    """Bundles by factor and level, for factors that have bundles."""
    wrong = problems(bundles, dict[str, dict[str, Bundle]], found.origin, key)
    if wrong:
        found += wrong
        return
    having = [name for name, factor in study.factors.items() if factor.bundles]
    for name, by_level in bundles.items():
        if found.known(key, name, having, "factors with bundles"):
            texts = [level_text(level) for level in study.factors[name].levels]
            _check_bundle_settings(found, f"{key}.{name}", by_level, texts)


def _check_windows(found: Findings, study: Study, devices: Mapping[str, Device]) -> None:
    """On no device may warm-up take all steps."""
    short: dict[tuple[int, int], str] = {}
    for name, device in {"": None, **devices}.items():
        keys = adapt_keys(name, device) if device else []
        protocol = adapted(study.protocol, study, "protocol", keys)
        window = (protocol["warmup_steps"], protocol["steps"])
        if window[0] >= window[1]:
            short.setdefault(window, f"protocol.warmup_steps{f' (on {name})' if name else ''}")
    for (warmup, steps), key in short.items():
        found.say(key, f"{warmup} is not allowed; it must be below steps, {steps}")


def _check_levels(
    found: Findings, key: str, named: Mapping[str, Level], levels: Mapping[str, list[Level]]
) -> None:
    """What is named as a level of a factor must be one."""
    for factor, level in named.items():
        if found.known(key, factor, levels, "factors") and levels[factor]:
            found.known(f"{key}.{factor}", level, levels[factor], "its levels")
