"""Reads the whole configuration, and checks its files against each other."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.devices import DETECTED, Device, Machine, read_devices, with_detected
from feedrate.config.errors import Origin, Problems, numbered, raise_all
from feedrate.config.settings import Settings
from feedrate.config.spec import KINDS, StudyProtocol
from feedrate.config.study import (
    BELOW_MEMORY,
    SETTINGS,
    BenchmarkAccuracy,
    BenchmarkScore,
    Factor,
    Published,
    Sheet,
    Study,
    adapt_keys,
    adapted,
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
REGISTRY = "entries of config/devices.yaml"
SHEETS, SELFTEST = "config/published/sheets.yaml", "config/selftest.yaml"
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
    if parts := workflow.selftest_parts:
        problems = Problems(origin)
        levels = load(root / SELFTEST, Study, SELFTEST).factors["part"].levels
        problems.check_names("selftest_parts", parts, levels, f"parts of {SELFTEST}")
        raise_all(problems)
    if DETECTED in workflow.devices:
        names, devices = with_detected(workflow.devices, devices, look(), origin)
        workflow = msgspec.structs.replace(workflow, devices=names)
    files = sorted(path.name for path in (root / "config/published").glob("*.csv"))
    studies: dict[str, Study] = {}
    for name in workflow.studies:
        file = f"config/studies/{name}.yaml"
        studies[name] = load(root / file, Study, file)
        raise_all(check_study(file, studies[name], devices, files))

    def rows(names: list[str], kind: type[AnyRow]) -> list[AnyRow]:
        paths = map("config/published/{}".format, names)
        return [row for path in paths for row in read_rows(root / path, kind, path)]

    published = {name: read_published(root, study, devices) for name, study in studies.items()}
    return Project(
        config=workflow,
        devices=devices,
        studies=studies,
        published=published,
        scores={n: rows(s.published_scores, BenchmarkScore) for n, s in studies.items()},
        accuracies={n: rows(s.published_accuracies, BenchmarkAccuracy) for n, s in studies.items()},
        sheets=read_sheets(root, studies, published),
    )


def read_published(root: Path, study: Study, devices: Mapping[str, Device]) -> list[Published]:
    """The published numbers of a study, checked against it and the registry. Raises ConfigError.
    Their levels need not be the study's: somebody may have measured 4 workers."""
    published: list[Published] = []
    for file in map("config/published/{}".format, study.published):
        rows, problems = read_rows(root / file, Published, file), Problems(file)
        for row in rows:
            place, editions = f"row {row.id}", study.source.editions
            problems.check_known(f"{place}: device", row.device, devices, REGISTRY)
            problems.check_known(f"{place}: edition", row.edition, editions, "source.editions")
            for name, level in row.levels.items():
                if problems.check_known(f"{place}: levels", name, study.factors, "the factors"):
                    factor, key = study.factors[name], f"{place}: levels.{name}"
                    if factor.sets:
                        problems.check_type(key, level, SETTINGS[factor.sets])
                    else:
                        problems.check_known(key, level, factor.levels, "its levels")
        raise_all(problems)
        published += rows
    return published


def read_sheets(
    root: Path, studies: Mapping[str, Study], published: Mapping[str, Sequence[Published]]
) -> dict[Name, Sheet]:
    """All sheets under `root`. Raises ConfigError, also for a sheet that is named but missing."""
    file, sheets = root / SHEETS, dict[Name, Sheet]()
    if file.is_file():
        sheets = load(file, dict[Name, Sheet], SHEETS)
    problems = Problems(SHEETS)
    for name, sheet in sheets.items():
        if sheet.like and problems.check_known(f"{name}.like", sheet.like, sheets, "entries"):
            facts = sheets[sheet.like].facts | sheet.facts
            sheets[name] = msgspec.structs.replace(sheet, facts=facts)
    for study, entry in studies.items():
        for name in dict.fromkeys([entry.source.sheet, *(row.sheet for row in published[study])]):
            if name:
                problems.check_known(f"sheet of the study {study}", name, sheets, "entries")
    raise_all(problems)
    return sheets


def study_names(root: Path) -> list[str]:
    """The names of all studies under `root`, whether the configuration selects them or not."""
    return sorted(path.stem for path in (root / "config/studies").glob("*.yaml"))


def check_study(
    origin: str, study: Study, devices: Mapping[str, Device], files: Sequence[str]
) -> list[str]:
    """Check a study in itself, against the registry and against the `files` in config/published."""
    problems = Problems(origin)
    levels = _check_factors(problems, study)
    check_levels(problems, "baseline", study.baseline, levels)
    _check_adapt(problems, study, devices)
    for key, exclude in numbered("exclude[{}]", study.exclude):
        check_levels(problems, f"{key}.levels", exclude.levels, levels)
        for name, exceptions in exclude.unless.items():
            for level in exceptions:
                check_levels(problems, f"{key}.unless", {name: level}, levels)
    for part in ("within", "ladder"):
        problems.check_names(part, getattr(study, part), study.factors, "factors")
    for part in FILES:
        problems.check_names(part, getattr(study, part), files, "files in config/published")
    claims = [claim.id for claim in study.claims]
    problems.check_unique(numbered("claims[{}].id", claims))
    if study.claim:
        problems.check_known("claim", study.claim, claims, "the study's claims")
    if study.asks == "latency" and study.task != "inference":
        problems.add("asks", "latency needs `task: inference`; this study trains")
    if study.asks == "largest" and not study.ladder:
        problems.add("asks", "largest needs a `ladder` of factors that need more memory")
    for key, claim in numbered("claims[{}].edition", study.claims):
        if claim.edition:
            problems.check_known(key, claim.edition, study.source.editions, "source.editions")
    return problems


def _check_factors(problems: Problems, study: Study) -> dict[str, list[Level]]:
    """Check all factors. Returns the levels of each; none if wrong, so that no error repeats."""
    levels: dict[str, list[Level]] = {}
    places: list[tuple[str, str]] = []  # of each setting that a factor sets
    for name, factor in study.factors.items():
        key, before = f"factors.{name}", len(problems)
        if bool(factor.sets) == bool(factor.bundles):
            problems.add(key, "it needs either `sets` (one setting) or `bundles` (by level)")
        elif factor.bundles:
            for text in factor.texts:
                if text not in factor.bundles:
                    problems.add(f"{key}.bundles.{text}", "missing, but required; {} sets nothing")
            _check_bundles(problems, f"{key}.bundles", factor.bundles, factor.texts)
            _check_level_texts(problems, f"{key}.levels", factor, str)
        elif problems.check_known(f"{key}.sets", factor.sets, SETTINGS, "settings"):
            _check_level_texts(problems, f"{key}.levels", factor, SETTINGS[factor.sets])
        levels[name] = factor.levels if len(problems) == before else []
        for text in factor.requires if levels[name] else ():
            problems.check_known(f"{key}.requires", text, factor.texts, "its levels")
        settings: set[str] = set()  # on any device
        for device in ("", *study.adapt):
            for level in factor.levels:
                settings.update(level_settings(study, name, level, [device]))
        part = "sets" if factor.sets else "bundles"
        places += [(f"{key}.{part}", setting) for setting in sorted(settings)]
        if study.task == "training" and any(s.startswith("inference.") for s in settings):
            problems.add(key, "only `task: inference` has its setting; this study trains")
        if name not in study.baseline:
            texts = ", ".join(factor.texts)
            problems.add(f"baseline.{name}", f"missing, but required; its levels: {texts}")
    problems.check_unique(places)
    longest = {name: max(factor.texts, key=len) for name, factor in study.factors.items()}
    if len(cell_name(longest)) > _LONGEST_CELL:
        problems.add("factors", f"names and levels make cell names longer than {_LONGEST_CELL}")
    return levels


def _check_bundles(
    problems: Problems, key: str, bundles: Mapping[str, Mapping[str, Any]], levels: list[str]
) -> None:
    """Check that bundles have known levels and settings, and values that fit the settings."""
    for level, bundle in bundles.items():
        problems.check_known(key, level, levels, "its levels")
        for setting, value in bundle.items():
            if problems.check_known(f"{key}.{level}", setting, SETTINGS, "settings"):
                problems.check_type(f"{key}.{level}.{setting}", value, SETTINGS[setting])


def _check_level_texts(problems: Problems, key: str, factor: Factor, kind: Any) -> None:
    """A level is of `kind`, fits a folder's name, and is read from it as the same level."""
    for place, level in numbered(f"{key}[{{}}]", factor.levels):
        text = level_text(level)
        if problems.check_type(place, level, kind):
            if not _LEVEL.fullmatch(text):
                allowed = "it names folders and may have letters, digits, _ . + -"
                problems.add(place, f"{text!r} is not allowed; {allowed}")
            elif isinstance(level, str) and parse_level(text) != level:
                problems.add(place, f"{text!r} is not allowed; without quotes it is not text")
    problems.check_unique(numbered(f"{key}[{{}}]", factor.levels))


def _check_adapt(problems: Problems, study: Study, devices: Mapping[str, Device]) -> None:
    """Check each adapted part by itself, and that each device has steps left after the warm-up."""
    factors = {name: factor for name, factor in study.factors.items() if factor.bundles}
    for key, adaptation in study.adapt.items():
        place = f"adapt.{key}"
        if not BELOW_MEMORY.fullmatch(key):
            names = [*plugins.names(KINDS), *devices]
            problems.check_known("adapt", key, names, "kinds and devices")
        problems.check_type(f"{place}.settings", adapted(study, "settings", [key]), Settings)
        problems.check_type(f"{place}.protocol", adapted(study, "protocol", [key]), StudyProtocol)
        for name, bundles in adaptation.bundles.items():
            if problems.check_known(f"{place}.bundles", name, factors, "factors with bundles"):
                texts = factors[name].texts
                _check_bundles(problems, f"{place}.bundles.{name}", bundles, texts)
    if problems:
        return
    too_short: dict[tuple[int, int], str] = {}  # each pair of steps once
    for name, device in {"": None, **devices}.items():
        protocol = adapted(study, "protocol", adapt_keys(study, name, device) if device else [])
        warmup, steps = protocol["warmup_steps"], protocol["steps"]
        if warmup >= steps:
            place = f"protocol.warmup_steps (on {name})" if name else "protocol.warmup_steps"
            too_short.setdefault((warmup, steps), place)
    for (warmup, steps), place in too_short.items():
        problems.add(place, f"{warmup} is not allowed; it must be below steps, {steps}")


def check_levels(
    problems: Problems, key: str, chosen: Mapping[str, Level], levels: Mapping[str, list[Level]]
) -> None:
    """Check that factors and their levels at `key` are among `levels`."""
    for factor, level in chosen.items():
        if problems.check_known(key, factor, levels, "factors") and levels[factor]:
            problems.check_known(f"{key}.{factor}", level, levels[factor], "its levels")
