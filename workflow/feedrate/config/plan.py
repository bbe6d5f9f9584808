"""The plan of a configuration: studies x devices -> cells -> runs."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from feedrate.config.devices import Device, default_launcher
from feedrate.config.errors import ConfigError
from feedrate.config.project import Project
from feedrate.config.settings import LoaderSettings, Settings
from feedrate.config.spec import (
    Launcher,
    Protocol,
    RunSpec,
    StudyProtocol,
    ignored_settings,
    library_of,
    library_rules,
    spec_faults,
)
from feedrate.config.study import Published, adapt_keys, adapted, level_settings
from feedrate.config.values import Level, Strict, cell_name, convert, copy_fields, level_text
from feedrate.config.workflow import dataset_for

_replace = msgspec.structs.replace

RunKey = tuple[str, str, str, int]  # study, device, cell and repeat of a run


class CellWithoutRuns(Strict, kw_only=True):
    """A cell that is shown and never launched."""

    study: str
    device: str
    cell: str
    levels: dict[str, Level]


class Unsupported(CellWithoutRuns, kw_only=True):
    """A cell that needs a capability that the device lacks, or a library that is not installed."""

    lacks: str
    install: str = ""  # how to install the library


class Shared(CellWithoutRuns, kw_only=True):
    """A cell for which the device would do the same work as for the cell `measured_as`."""

    measured_as: str


class Plan(Strict, kw_only=True):
    """All runs that the configuration asks for."""

    runs: dict[RunKey, RunSpec]
    unsupported: list[Unsupported]
    shared: list[Shared] = []

    def of_study(self, study: str) -> Iterator[RunSpec]:
        """The runs of one study, in measuring order."""
        return (spec for key, spec in self.runs.items() if key[0] == study)

    def devices_of(self, study: str) -> list[str]:
        """The devices for which the plan has cells of a study."""
        cells: list[Any] = [*self.runs.values(), *self.unsupported, *self.shared]
        return list(dict.fromkeys(cell.device for cell in cells if cell.study == study))


class AdaptedStudy:
    """The protocol and the settings of a study, adapted for a device. Raises ConfigError."""

    def __init__(self, project: Project, name: str, device: str) -> None:
        self._config, self._study = project.config, project.studies[name]
        self._keys = adapt_keys(self._study, device, project.devices[device])
        origin = f"config/studies/{name}.yaml, adapted for {device}"
        protocol = adapted(self._study, "protocol", self._keys)
        if self._config.repeats is not None:
            protocol["repeats"] = self._config.repeats
        most = msgspec.to_builtins(self._config.protocol_at_most) or {}
        protocol |= {key: min(protocol[key], limit) for key, limit in most.items()}
        self.protocol = convert(protocol, StudyProtocol, origin)
        settings = adapted(self._study, "settings", self._keys)
        is_for_model = self._config.checkpoint_model in (None, settings["model"]["name"])
        if self._config.checkpoint is not None and is_for_model:
            settings["model"]["checkpoint"] = self._config.checkpoint
            settings["model"]["revision"] = self._config.checkpoint_revision
        self.settings = convert(settings, Settings, origin)  # before any level

    def settings_of(self, levels: Mapping[str, Level]) -> Settings:
        """The settings of the cell with these levels."""
        values: dict[str, dict[str, Any]] = msgspec.to_builtins(self.settings)
        for name, level in levels.items():
            for setting, value in level_settings(self._study, name, level, self._keys).items():
                part, _, key = setting.partition(".")
                values[part][key] = value
        settings = msgspec.convert(values, Settings)
        model, study_model = settings.model, self.settings.model
        if model.name == study_model.name or model.checkpoint != study_model.checkpoint:
            return settings
        # A level with another model does not start from the weights of the study's model.
        weights: dict[str, str | None] = {"checkpoint": None, "revision": None}
        if self._config.checkpoint_model == model.name:
            weights["checkpoint"] = self._config.checkpoint
            weights["revision"] = self._config.checkpoint_revision
        return _replace(settings, model=_replace(model, **weights))


def make_plan(project: Project) -> Plan:
    """All runs in measuring order: repeat 1 of all cells, then repeat 2, so that slow drift of a
    machine affects all cells alike. The plan does not depend on what is installed: `runnable` does.
    Raises ConfigError for settings that do not work together."""
    plan = Plan(runs={}, unsupported=[], shared=[])
    for name, device in itertools.product(project.studies, project.config.devices):
        adapted_study = AdaptedStudy(project, name, device)
        protocol = adapted_study.protocol
        entry = project.devices[device]
        environment = dict(sorted(entry.software.environment.items()))
        common = copy_fields(
            RunSpec,
            entry,
            software=_replace(entry.software, environment=environment),
            task=project.studies[name].task,
            study=name,
            device=device,
            launcher=_launcher(entry, adapted_study.settings),
            cell="",
            levels={},
            repeat=1,
            seed=protocol.seed,
            dataset=project.config.dataset,
            settings=adapted_study.settings,
            protocol=copy_fields(Protocol, protocol),
        )
        supported, lacking = _cells(project, common, adapted_study)
        cells, shared = _distinct(supported)
        plan.unsupported.extend(lacking)
        plan.shared.extend(shared)
        for repeat in range(1, protocol.repeats + 1):
            for cell in cells:
                spec = _replace(cell, repeat=repeat, seed=protocol.seed + repeat - 1)
                plan.runs[name, device, cell.cell, repeat] = spec
    return plan


def runnable(
    project: Project, plan: Plan, has_ended: Callable[[RunSpec], bool] = lambda _: False
) -> Plan:
    """The plan without the runs whose loader library is not installed here. Runs that have ended
    stay: removing a library removes no result. A cell that has no run left is unsupported."""
    runs: dict[RunKey, RunSpec] = {}
    lacking: dict[tuple[str, str, str], Unsupported] = {}
    for key, spec in plan.runs.items():
        library = library_of(spec.settings.loader)
        install = ""
        # Another interpreter may have the library: the job finds out.
        if library and not project.devices[spec.device].software.python:
            form = spec.settings.loader.form or "same"
            install = library_rules(library).missing_packages(library, form)
        if not install or has_ended(spec):
            runs[key] = spec
        else:
            lacking[key[:3]] = copy_fields(Unsupported, spec, lacks=library, install=install)
    for study, device, cell, _ in runs:
        lacking.pop((study, device, cell), None)
    unsupported, shared = [*plan.unsupported, *lacking.values()], []
    for entry in plan.shared:
        if first := lacking.get((entry.study, entry.device, entry.measured_as)):
            unsupported.append(_replace(first, cell=entry.cell, levels=entry.levels))
        else:
            shared.append(entry)
    return Plan(runs=runs, unsupported=unsupported, shared=shared)


def timeouts_min(project: Project) -> dict[str, dict[str, float]]:
    """Minutes that a job may take, by study and device."""
    return {
        study: {
            device: AdaptedStudy(project, study, device).protocol.timeout_min
            for device in project.config.devices
        }
        for study in project.studies
    }


def published_settings(project: Project, name: str, row: Published) -> Settings:
    """The settings of a published number's cell, with the batch size that the source states."""
    levels = project.studies[name].baseline | row.levels
    settings = AdaptedStudy(project, name, row.device).settings_of(levels)
    size = row.batch_size or settings.train.batch_size
    return _replace(settings, train=_replace(settings.train, batch_size=size))


def _cells(
    project: Project, common: RunSpec, adapted_study: AdaptedStudy
) -> tuple[list[RunSpec], list[Unsupported]]:
    """The cells of a study on a device, as specs of repeat 1, and the unsupported ones."""
    study, device = project.studies[common.study], project.devices[common.device]
    cells: list[RunSpec] = []
    unsupported: list[Unsupported] = []
    for combination in itertools.product(*(f.levels for f in study.factors.values())):
        levels = dict(zip(study.factors, combination, strict=True))
        if any(exclude.covers(levels, device.able) for exclude in study.exclude):
            continue
        needs = (f.requires.get(level_text(levels[name])) for name, f in study.factors.items())
        lacks = ", ".join(need for need in needs if need and need not in device.able)
        spec = _replace(common, cell=cell_name(levels), levels=levels)
        if lacks:
            unsupported.append(copy_fields(Unsupported, spec, lacks=lacks))
        else:
            settings = adapted_study.settings_of(levels)
            launcher = _launcher(device, settings)
            cells.append(_replace(spec, settings=settings, launcher=launcher))
    for spec in cells:
        if faults := spec_faults(spec):
            place = f"config/studies/{spec.study}.yaml: cell {spec.cell} on {spec.device}"
            raise ConfigError(f"{place}: {faults[0]}")
    dataset = dataset_for(project.config, cells)
    return [_replace(spec, dataset=dataset) for spec in cells], unsupported


def _distinct(cells: Iterable[RunSpec]) -> tuple[list[RunSpec], list[Shared]]:
    """The cells to run, and those that differ from one only in what the decoder ignores."""
    distinct: list[RunSpec] = []
    shared: list[Shared] = []
    first: dict[bytes, str] = {}
    for spec in cells:
        loader, measured_as = spec.settings.loader, spec.cell
        if ignored := ignored_settings(loader.decode, spec.kind):
            usual = _replace(loader, **{n: getattr(LoaderSettings(), n) for n in ignored})
            work = msgspec.json.encode(_replace(spec.settings, loader=usual))
            measured_as = first.setdefault(work, spec.cell)
        if measured_as == spec.cell:
            distinct.append(spec)
        else:
            shared.append(copy_fields(Shared, spec, measured_as=measured_as))
    return distinct, shared


def _launcher(entry: Device, settings: Settings) -> Launcher:
    """The launcher of a device. FSDP needs a process group even for one rank."""
    if entry.launcher:
        return entry.launcher
    if entry.nodes > 1:
        return default_launcher("nodes")
    several = entry.count > 1 or settings.train.strategy == "fsdp"
    return default_launcher("processes" if several else "process")
