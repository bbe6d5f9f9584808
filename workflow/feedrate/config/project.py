"""Reads the whole configuration, and checks its files against each other."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.devices import DETECTED, Device, Machine, read_devices, with_detected
from feedrate.config.errors import Findings, Origin, numbered, raise_all
from feedrate.config.settings import Settings
from feedrate.config.spec import KINDS, StudyProtocol
from feedrate.config.study import (
    BELOW_MEMORY,
    SETTINGS,
    BenchmarkAccuracy,
    BenchmarkScore,
    Bundle,
    Factor,
    Published,
    Sheet,
    Study,
    adapt_keys,
    adapted,
    check_levels,
    level_settings,
)
from feedrate.config.values import (
    AnyRow,
    Level,
    Name,
    Strict,
    cell_name,
    convert,
    level_text,
    load,
    parse_level,
    read_rows,
)
from feedrate.config.workflow import WorkflowConfig, check_config
from feedrate.core import plugins

Devices = dict[Name, Device]
SHEETS = "config/published/sheets.yaml"
FILES = tuple(name for name in Study.__struct_fields__ if name.startswith("published"))
"""The keys of a study that name files in config/published."""
_LEVEL = re.compile(r"[A-Za-z0-9_.+-]+")
_LONGEST_CELL = 200
"""Characters of a cell's name: it names a folder, which file systems limit to 255 bytes."""


class Project(Strict):
    """The configuration as a whole, read and checked."""

    config: WorkflowConfig
    devices: Devices
    studies: dict[Name, Study]
    published: dict[Name, list[Published]]
    scores: dict[Name, list[BenchmarkScore]] = {}
    accuracies: dict[Name, list[BenchmarkAccuracy]] = {}
    """By study: published numbers, scores on Winoground, accuracies elsewhere."""
    sheets: dict[str, Sheet] = {}
    """What the sources of published numbers say about their experiments."""
    measured: dict[Name, list[Name]] = {}
    """In a report from run folders, by study: the devices that have runs of it."""
    sites: dict[Name, str] = {}
    """In a report of several sites, by device: its site."""

    def devices_of(self, study: str) -> list[str]:
        """The devices on which a study is measured: those of config.yaml, or of `measured`."""
        return self.measured.get(study, self.config.devices)


def load_project(
    root: Path,
    config: Mapping[str, Any],
    look: Callable[[], Machine] = lambda: Machine(host="this machine"),
    origin: Origin = "config/config.yaml",
) -> Project:
    """Read all configuration under `root`, with `config` as the value of config.yaml. `look` finds
    the accelerators of this machine for `devices: [detected]`. `origin` says which file a key of
    `config` comes from. Raises ConfigError with all errors of the first file that has any."""
    workflow = convert(config, WorkflowConfig, origin)
    devices = read_devices(root, workflow.devices)
    raise_all(check_config(origin, workflow, devices, study_names(root)))
    if DETECTED in workflow.devices:
        names, devices = with_detected(workflow.devices, devices, look(), origin)
        workflow = msgspec.structs.replace(workflow, devices=names)
    files = sorted(path.name for path in (root / "config/published").glob("*.csv"))
    studies: dict[str, Study] = {}
    for name in workflow.studies:
        file = f"config/studies/{name}.yaml"
        studies[name] = load(root / file, Study, file)
        raise_all(check_study(file, studies[name], devices, files))
    published = {name: read_published(root, study, devices) for name, study in studies.items()}
    return Project(
        config=workflow,
        devices=devices,
        studies=studies,
        published=published,
        scores=read_scores(root, studies, "published_scores", BenchmarkScore),
        accuracies=read_scores(root, studies, "published_accuracies", BenchmarkAccuracy),
        sheets=read_sheets(root, studies, published),
    )


def read_published(root: Path, study: Study, devices: Mapping[str, Device]) -> list[Published]:
    """The published numbers of a study, checked against it and the registry. Raises ConfigError."""
    published: list[Published] = []
    for file in map("config/published/{}".format, study.published):
        rows, found = read_rows(root / file, Published, file), Findings(file)
        for row in rows:
            place, editions = f"row {row.id}", study.source.editions
            found.known(f"{place}: device", row.device, devices, "entries of config/devices.yaml")
            found.known(f"{place}: edition", row.edition, editions, "the study's source.editions")
            check_levels(found, f"{place}: levels", row.levels, study)
        raise_all(found)
        published += rows
    return published


def read_sheets(
    root: Path, studies: Mapping[str, Study], published: Mapping[str, Sequence[Published]]
) -> dict[Name, Sheet]:
    """All sheets under `root`. Raises ConfigError, also for a sheet that is named but missing."""
    file, sheets = root / SHEETS, dict[Name, Sheet]()
    if file.is_file():
        sheets = load(file, dict[Name, Sheet], SHEETS)
    wrong = Findings(SHEETS)
    for name, sheet in sheets.items():
        if sheet.like and wrong.known(f"{name}.like", sheet.like, sheets, "entries"):
            facts = sheets[sheet.like].facts | sheet.facts
            sheets[name] = msgspec.structs.replace(sheet, facts=facts)
    for study, entry in studies.items():
        for name in dict.fromkeys([entry.source.sheet, *(row.sheet for row in published[study])]):
            if name:
                wrong.known(f"sheet of the study {study}", name, sheets, "entries")
    raise_all(wrong)
    return sheets


def read_scores(
    root: Path, studies: Mapping[str, Study], key: str, kind: type[AnyRow]
) -> dict[str, list[AnyRow]]:
    """The rows of the files that each study names under `key`. Raises ConfigError."""
    files = {n: map("config/published/{}".format, getattr(s, key)) for n, s in studies.items()}
    return {n: [r for f in fs for r in read_rows(root / f, kind, f)] for n, fs in files.items()}


def study_names(root: Path) -> list[str]:
    """The names of all studies under `root`, whether the configuration selects them or not."""
    return sorted(path.stem for path in (root / "config/studies").glob("*.yaml"))


def check_study(
    origin: str, study: Study, devices: Mapping[str, Device], files: Sequence[str]
) -> list[str]:
    """Check a study in itself, against the registry and against the `files` in config/published."""
    found, shape = Findings(origin), dict[str, dict[str, Bundle]]
    for key, change in study.adapt.items():
        found.fits(f"adapt.{key}.bundles", change.get("bundles", {}), shape)
    if found:  # the other checks read them
        return found
    levels = _check_factors(found, study)
    _check_levels(found, "baseline", study.baseline, levels)
    _check_adapt(found, study, devices)
    for key, exclude in numbered("exclude[{}]", study.exclude):
        if not exclude.levels:
            found.say(f"{key}.levels", "it must not be empty")
        _check_levels(found, f"{key}.levels", exclude.levels, levels)
        for name, kept in exclude.unless.items():
            for level in kept:
                _check_levels(found, f"{key}.unless", {name: level}, levels)
    found.names("within", study.within, study.factors, "factors")
    found.names("ladder", study.ladder, study.factors, "factors")
    for part in FILES:
        found.names(part, getattr(study, part), files, "files in config/published")
    claims = [claim.id for claim in study.claims]
    found.unique(numbered("claims[{}].id", claims))
    if study.claim:
        found.known("claim", study.claim, claims, "the study's claims")
    if study.asks == "latency" and study.task != "inference":
        found.say("asks", "latency is what `task: inference` measures; this study trains")
    if study.asks == "largest" and not study.ladder:
        found.say("asks", "largest needs a `ladder`: factors whose later levels need more memory")
    for key, claim in numbered("claims[{}].edition", study.claims):
        if claim.edition:
            found.known(key, claim.edition, study.source.editions, "source.editions")
    return found


def _check_factors(found: Findings, study: Study) -> dict[str, list[Level]]:
    """Check the settings, levels and baselines of all factors. Returns the levels of each; none if
    wrong, so that no error is repeated."""
    levels: dict[str, list[Level]] = {}
    used: list[tuple[str, str]] = []
    for name, factor in study.factors.items():
        before = len(found)
        _check_factor(found, f"factors.{name}", factor)
        levels[name] = factor.levels if len(found) == before else []
        for level in factor.requires if levels[name] else ():
            found.known(f"factors.{name}.requires", level, factor.texts, "its levels")
        # On any device:
        bundles = (
            level_settings(study, name, level, [key])
            for key in ("", *study.adapt)
            for level in factor.levels
        )
        sets = sorted(set().union(*bundles))
        used += [(f"factors.{name}.{'sets' if factor.sets else 'bundles'}", one) for one in sets]
        if study.task == "training" and any(one.startswith("inference.") for one in sets):
            wrong = "only `task: inference` has its setting; this study trains"
            found.say(f"factors.{name}", wrong)
        if name not in study.baseline:
            known = ", ".join(factor.texts)
            found.say(f"baseline.{name}", f"missing, but required; its levels: {known}")
    found.unique(used)
    longest = {name: max(factor.texts, key=len) for name, factor in study.factors.items()}
    if len(cell_name(longest)) > _LONGEST_CELL:
        found.say("factors", f"names and levels make cell names longer than {_LONGEST_CELL}")
    return levels


def _check_factor(found: Findings, key: str, factor: Factor) -> None:
    if bool(factor.sets) == bool(factor.bundles):
        found.say(key, "it needs either `sets` (one setting) or `bundles` (settings by level)")
    elif factor.bundles:
        for level in (text for text in factor.texts if text not in factor.bundles):
            found.say(f"{key}.bundles.{level}", "missing, but required; {} sets nothing")
        _check_bundles(found, f"{key}.bundles", factor.bundles, factor.texts)
        _check_level_texts(found, f"{key}.levels", factor, str)
    elif found.known(f"{key}.sets", factor.sets, SETTINGS, "settings"):
        _check_level_texts(found, f"{key}.levels", factor, SETTINGS[factor.sets])


def _check_bundles(
    found: Findings, key: str, bundles: Mapping[str, Mapping[str, Any]], levels: list[str]
) -> None:
    """Check that bundles have known levels and settings, and values that fit the settings."""
    for level, bundle in bundles.items():
        place = f"{key}.{level}"
        found.known(key, level, levels, "its levels")
        for sets, value in bundle.items():
            if found.known(place, sets, SETTINGS, "settings"):
                found.fits(f"{place}.{sets}", value, SETTINGS[sets])


def _check_level_texts(found: Findings, key: str, factor: Factor, kind: Any) -> None:
    """Each level must be of `kind`, and its text must fit a folder's name and be read as the same
    level."""
    for place, level in numbered(f"{key}[{{}}]", factor.levels):
        text = level_text(level)
        if found.fits(place, level, kind):
            if not _LEVEL.fullmatch(text):
                allowed = "it names folders and may have letters, digits, _ . + -"
                found.say(place, f"{text!r} is not allowed; {allowed}")
            elif isinstance(level, str) and parse_level(text) != level:
                found.say(place, f"{text!r} is not allowed; without quotes it is not text")
    found.unique(numbered(f"{key}[{{}}]", factor.levels))


def _check_adapt(found: Findings, study: Study, devices: Mapping[str, Device]) -> None:
    """Check each adapted part by itself, and the protocol that results for each device."""
    parts: dict[str, Any] = {"settings": Settings, "protocol": StudyProtocol}
    having = {name: factor for name, factor in study.factors.items() if factor.bundles}
    for key, change in study.adapt.items():
        if not BELOW_MEMORY.fullmatch(key):
            found.known("adapt", key, [*plugins.names(KINDS), *devices], "kinds and devices")
        for part, value in change.items():
            place = f"adapt.{key}.{part}"
            if not found.known(f"adapt.{key}", part, [*parts, "bundles"], "parts"):
                continue
            if part in parts:
                if found.fits(place, value, dict):
                    found.fits(place, adapted(study, part, [key]), parts[part])
            else:
                for name, bundles in value.items():
                    if found.known(place, name, having, "factors with bundles"):
                        _check_bundles(found, f"{place}.{name}", bundles, having[name].texts)
    if not found:
        _check_windows(found, study, devices)


def _check_windows(found: Findings, study: Study, devices: Mapping[str, Device]) -> None:
    """Check that steps are left to measure after the warm-up, on every device."""
    short: dict[tuple[int, int], str] = {}
    for name, device in {"": None, **devices}.items():
        keys = adapt_keys(study, name, device) if device else []
        protocol = adapted(study, "protocol", keys)
        window = (protocol["warmup_steps"], protocol["steps"])
        if window[0] >= window[1]:
            short.setdefault(window, f"protocol.warmup_steps{f' (on {name})' if name else ''}")
    for (warmup, steps), key in short.items():
        found.say(key, f"{warmup} is not allowed; it must be below steps, {steps}")


def _check_levels(
    found: Findings, key: str, named: Mapping[str, Level], levels: Mapping[str, list[Level]]
) -> None:
    for factor, level in named.items():
        if found.known(key, factor, levels, "factors") and levels[factor]:
            found.known(f"{key}.{factor}", level, levels[factor], "its levels")
