"""The plan: studies x devices -> cells -> runs, and the cells that a device cannot do."""

import copy
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.base import Level, Strict
from feedrate.config.device import Device
from feedrate.config.load import ConfigError, convert, load
from feedrate.config.published import Published, read_published
from feedrate.config.settings import Protocol, RunSpec, Settings
from feedrate.config.study import Study
from feedrate.config.workflow import WorkflowConfig

Devices = dict[str, Device]


class Unsupported(Strict, kw_only=True):
    """A cell that a device lacks the capability for; it is shown, and never launched."""

    study: str
    device: str
    cell: str
    levels: dict[str, Level]
    lacks: str


class Project(Strict, kw_only=True):
    """The configuration as a whole, read and checked."""

    config: WorkflowConfig
    devices: Devices
    studies: dict[str, Study]
    published: dict[str, list[Published]]


class Plan(Strict, kw_only=True):
    """All runs that the configuration asks for."""

    runs: dict[tuple[str, str, str, int], RunSpec]
    unsupported: list[Unsupported]

    def of_study(self, study: str) -> Iterator[RunSpec]:
        """The runs of one study, in the order in which they should be made."""
        return (spec for key, spec in self.runs.items() if key[0] == study)


def load_project(root: Path, config: dict[str, Any]) -> Project:
    """Read all configuration under `root`/config, with `config` as the value of config.yaml.

    Raises ConfigError for the first file that is wrong, before anything is started.
    """
    workflow = convert(config, WorkflowConfig, "config/config.yaml (or --config)")
    devices = load(root / "config/devices.yaml", Devices)
    studies = {name: load(root / f"config/studies/{name}.yaml", Study) for name in workflow.studies}
    _known("devices", workflow.devices, list(devices), "config/devices.yaml")
    _known("dataset", [workflow.dataset], list(workflow.datasets), "config/config.yaml, datasets")
    for name, study in studies.items():
        _check_study(name, study, devices)
    published = {
        name: [
            row
            for file in study.published
            for row in read_published(root / "config/published" / file)
        ]
        for name, study in studies.items()
    }
    return Project(config=workflow, devices=devices, studies=studies, published=published)


def make_plan(project: Project) -> Plan:
    """Every run, in measuring order: repeat 1 of all cells, then repeat 2, so that slow drift of a
    machine spreads over all cells instead of resting on one."""
    runs: dict[tuple[str, str, str, int], RunSpec] = {}
    unsupported: list[Unsupported] = []
    for name, study in project.studies.items():
        for device in project.config.devices:
            cells, lacking = _cells(project, name, study, device)
            unsupported += lacking
            repeats = cells[0].protocol.repeats if cells else 0
            for repeat, first in itertools.product(range(1, repeats + 1), cells):
                spec = msgspec.structs.replace(
                    first, repeat=repeat, seed=first.protocol.seed + repeat - 1
                )
                runs[name, device, spec.cell, repeat] = spec
    return Plan(runs=runs, unsupported=unsupported)


def cell_name(levels: dict[str, Level]) -> str:
    """`workers=2,decode=host`: the cell's name in paths and columns."""
    return ",".join(f"{factor}={level_text(level)}" for factor, level in levels.items())


def level_text(level: Level) -> str:
    """A level as YAML writes it."""
    return str(level).lower() if isinstance(level, bool) else str(level)


def _cells(
    project: Project, name: str, study: Study, device: str
) -> tuple[list[RunSpec], list[Unsupported]]:
    """The cells of a study on a device, as specs of their first repeat, and what it cannot do."""
    entry = project.devices[device]
    settings, protocol = _adapted(project, name, study, device)
    cells: list[RunSpec] = []
    unsupported: list[Unsupported] = []
    for combination in itertools.product(*(f.levels for f in study.factors.values())):
        levels = dict(zip(study.factors, combination, strict=True))
        if any(e.levels.items() <= levels.items() for e in study.exclude):
            continue
        lacks = _lacks(study, entry, levels)
        if lacks:
            unsupported.append(
                Unsupported(
                    study=name, device=device, cell=cell_name(levels), levels=levels, lacks=lacks
                )
            )
            continue
        cells.append(
            RunSpec(
                study=name,
                device=device,
                kind=entry.kind,
                count=entry.count,
                launcher=entry.launcher or ("single" if entry.count == 1 else "torchrun"),
                cell=cell_name(levels),
                levels=levels,
                repeat=1,
                seed=protocol.seed,
                dataset=project.config.dataset,
                settings=_with_levels(name, study, settings, levels),
                protocol=protocol,
            )
        )
    return cells, unsupported


def _adapted(
    project: Project, name: str, study: Study, device: str
) -> tuple[dict[str, Any], Protocol]:
    """The study's settings and protocol with what it adapts for this device."""
    config = project.config
    settings: dict[str, Any] = msgspec.to_builtins(study.settings)
    protocol: dict[str, Any] = msgspec.to_builtins(study.protocol)
    for key in (project.devices[device].kind, device):
        for part, target in (("settings", settings), ("protocol", protocol)):
            _merge(target, study.adapt.get(key, {}).get(part, {}))
    if config.repeats is not None:
        protocol["repeats"] = config.repeats
    if config.checkpoint is not None:
        settings["model"] |= {
            "checkpoint": config.checkpoint,
            "revision": config.checkpoint_revision,
        }
    origin = f"config/studies/{name}.yaml, adapted for {device}"
    return settings, convert(protocol, Protocol, f"{origin}: protocol")


def _with_levels(
    name: str, study: Study, settings: dict[str, Any], levels: dict[str, Level]
) -> Settings:
    """The settings of one cell."""
    values = {part: dict(value) for part, value in settings.items()}
    for factor, level in levels.items():
        part, _, key = study.factors[factor].sets.partition(".")
        values[part][key] = level
    return convert(values, Settings, f"config/studies/{name}.yaml: {cell_name(levels)}")


def _lacks(study: Study, device: Device, levels: dict[str, Level]) -> str:
    """The capabilities that a cell needs and the device lacks, or an empty text."""
    needed = (
        study.factors[factor].requires.get(level_text(level)) for factor, level in levels.items()
    )
    return ", ".join(need for need in needed if need and need not in device.capabilities)


def _merge(target: dict[str, Any], changes: dict[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        else:
            target[key] = copy.deepcopy(value)


def _check_study(name: str, study: Study, devices: Devices) -> None:
    """Hold the references inside a study against each other."""
    origin = f"config/studies/{name}.yaml"
    fields = msgspec.to_builtins(study.settings)
    for factor, entry in study.factors.items():
        part, _, key = entry.sets.partition(".")
        _known(f"factors.{factor}.sets", [part], list(fields), "the parts of settings", origin)
        _known(f"factors.{factor}.sets", [key], list(fields[part]), f"settings.{part}", origin)
        texts = [level_text(level) for level in entry.levels]
        _known(f"factors.{factor}.requires", list(entry.requires), texts, "its levels", origin)
        if len(set(texts)) < len(texts):
            raise ConfigError(f"{origin}: factors.{factor}.levels: a level stands twice: {texts}")
        _known(f"baseline.{factor}", [study.baseline.get(factor)], entry.levels, "levels", origin)
    _known("baseline", list(study.baseline), list(study.factors), "factors", origin)
    for exclude in study.exclude:
        _known("exclude.levels", list(exclude.levels), list(study.factors), "factors", origin)
    for key, change in study.adapt.items():
        _known("adapt", [key], [*devices, "cpu", "cuda", "hpu"], "devices and kinds", origin)
        _known(f"adapt.{key}", list(change), ["settings", "protocol"], "parts", origin)
    if study.protocol.warmup_steps >= study.protocol.steps:
        raise ConfigError(
            f"{origin}: protocol.warmup_steps: {study.protocol.warmup_steps} is not allowed; "
            f"it must be below protocol.steps ({study.protocol.steps})"
        )


def _known(
    key: str, values: list[Any], allowed: list[Any], where: str, origin: str = "config/config.yaml"
) -> None:
    for value in values:
        if value not in allowed:
            names = ", ".join(map(str, allowed))
            raise ConfigError(
                f"{origin}: {key}: {value!r} is not allowed; it must be one of {where}: {names}"
            )
