"""The plan: studies x devices -> cells -> runs, and the cells that a device cannot do."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.base import BETWEEN_LEVELS, Level, Name, Strict, level_text
from feedrate.config.checks import check_config, check_devices, check_published
from feedrate.config.devices import DETECTED, Device, Machine, resolve
from feedrate.config.inference import inference_faults
from feedrate.config.levels import Changes, adapt_keys, adapted
from feedrate.config.load import all_of, convert, load, read_yaml
from feedrate.config.published import BenchmarkScore, Published, read_published, read_scores
from feedrate.config.settings import (
    Launcher,
    Protocol,
    RunSpec,
    Settings,
    StudyProtocol,
    loader_faults,
)
from feedrate.config.study import Study
from feedrate.config.study_checks import check_captions, check_study
from feedrate.config.workflow import WorkflowConfig

Devices = dict[Name, Device]

_replace = msgspec.structs.replace


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
    scores: dict[str, list[BenchmarkScore]] = {}
    """Published ones, on Winoground, by study."""


class Plan(Strict, kw_only=True):
    """All runs that the configuration asks for."""

    runs: dict[tuple[str, str, str, int], RunSpec]
    unsupported: list[Unsupported]

    def of_study(self, study: str) -> Iterator[RunSpec]:
        """The runs of one study, in the order in which they should be made."""
        return (spec for key, spec in self.runs.items() if key[0] == study)


def load_project(
    root: Path, config: dict[str, Any], look: Callable[[], Machine] = Machine.nowhere
) -> Project:
    """Read all configuration under `root`/config, with `config` as the value of config.yaml.

    `look` finds the accelerators of this machine; it is called where `devices` says `detected`.
    Raises ConfigError with all that is wrong in the first file that is wrong, before anything is
    started.
    """
    folder = root / "config"
    if (folder / "config.yaml").is_file():
        read_yaml(folder / "config.yaml", "config/config.yaml")  # who read it may let more pass
    origin = "config/config.yaml (or --config)"
    workflow = convert(config, WorkflowConfig, origin)
    devices = load(folder / "devices.yaml", Devices, "config/devices.yaml")
    _raise_for(check_devices("config/devices.yaml", devices))
    known = sorted(path.stem for path in (folder / "studies").glob("*.yaml"))
    files = sorted(path.name for path in (folder / "published").glob("*.csv"))
    _raise_for(check_config(origin, workflow, devices, known))
    if DETECTED in workflow.devices:
        names, devices = resolve(workflow.devices, devices, look(), origin)
        workflow = _replace(workflow, devices=names)
    studies: dict[str, Study] = {}
    published: dict[str, list[Published]] = {}
    scores: dict[str, list[BenchmarkScore]] = {}
    for name in workflow.studies:
        origin = f"config/studies/{name}.yaml"
        studies[name] = load(folder / f"studies/{name}.yaml", Study, origin)
        _raise_for(check_study(origin, studies[name], devices, files))
        published[name] = _published(folder, studies[name], devices)
        scores[name] = [
            row
            for file in studies[name].published_scores
            for row in read_scores(folder / "published" / file, f"config/published/{file}")
        ]
    _raise_for(check_captions(studies))
    return Project(
        config=workflow, devices=devices, studies=studies, published=published, scores=scores
    )


def with_all_studies(root: Path, project: Project) -> Project:
    """The same with every study of `root`/config. Raises ConfigError where one is wrong."""
    names = sorted(path.stem for path in (root / "config/studies").glob("*.yaml"))
    chosen = {"studies": names, "devices": [next(iter(project.devices))]}
    return load_project(root, msgspec.to_builtins(project.config) | chosen)


def _published(folder: Path, study: Study, devices: Devices) -> list[Published]:
    """The rows of a study's files of published numbers, checked."""
    rows: list[Published] = []
    for file in study.published:
        origin = f"config/published/{file}"
        here = read_published(folder / "published" / file, origin)
        _raise_for(check_published(origin, here, study, devices))
        rows += here
    return rows


def _raise_for(wrong: list[str]) -> None:
    if wrong:
        raise all_of(wrong)


def make_plan(project: Project) -> Plan:
    """Every run, in measuring order: repeat 1 of all cells, then repeat 2, so that slow drift of a
    machine spreads over all cells instead of resting on one."""
    runs: dict[tuple[str, str, str, int], RunSpec] = {}
    unsupported: list[Unsupported] = []
    for name, device in itertools.product(project.studies, project.config.devices):
        protocol = _protocol(project, name, device)
        common = _common(project, name, device, protocol)
        cells, lacking = _cells(
            project.studies[name], project.devices[device], common, project.config
        )
        unsupported += lacking
        for repeat, cell in itertools.product(range(1, protocol.repeats + 1), cells):
            seed = protocol.seed + repeat - 1
            runs[name, device, cell.cell, repeat] = _replace(cell, repeat=repeat, seed=seed)
    return Plan(runs=runs, unsupported=unsupported)


def timeouts_min(project: Project) -> dict[str, dict[str, float]]:
    """Minutes that a job may take, by study and device."""
    return {
        name: {
            device: _protocol(project, name, device).timeout_min
            for device in project.config.devices
        }
        for name in project.studies
    }


def study_settings(project: Project, name: str, device: str) -> Settings:
    """A study's settings, adapted for a device, before any level."""
    config, study, entry = project.config, project.studies[name], project.devices[device]
    settings = adapted(study.settings, study, "settings", adapt_keys(device, entry))
    others = config.checkpoint_model not in (None, settings["model"]["name"])
    if config.checkpoint is not None and not others:
        revision = config.checkpoint_revision
        settings["model"] |= {"checkpoint": config.checkpoint, "revision": revision}
    return convert(settings, Settings, f"config/studies/{name}.yaml, adapted for {device}")


def keeps_weights(spec: RunSpec, config: WorkflowConfig) -> bool:
    """Whether the run leaves a model behind, which is then scored and gets a card."""
    pushed = config.push_to_hub is not None and spec.repeat == 1
    return spec.task == "training" and (spec.protocol.save_checkpoints or pushed)


def cell_name(levels: dict[str, Level]) -> str:
    """`workers=2~decode=host`: the cell's name in paths and columns."""
    return BETWEEN_LEVELS.join(f"{factor}={level_text(level)}" for factor, level in levels.items())


def _cells(
    study: Study, device: Device, common: RunSpec, config: WorkflowConfig
) -> tuple[list[RunSpec], list[Unsupported]]:
    """The cells of a study on a device, as specs of their first repeat, and what it cannot do."""
    set_by = Changes(study, adapt_keys(common.device, device), config)
    cells: list[RunSpec] = []
    unsupported: list[Unsupported] = []
    for combination in itertools.product(*(f.levels for f in study.factors.values())):
        levels = dict(zip(study.factors, combination, strict=True))
        if any(e.covers(levels, device.able) for e in study.exclude):
            continue
        cell, lacks = cell_name(levels), _lacks(study, device, levels)
        if lacks:
            where = {"study": common.study, "device": common.device}
            unsupported.append(Unsupported(**where, cell=cell, levels=levels, lacks=lacks))
        else:
            settings = set_by.settings(common.settings, levels)
            launcher = _launcher(device, settings)
            made = {"cell": cell, "levels": levels, "settings": settings, "launcher": launcher}
            cells.append(_replace(common, **made))
    for spec in cells:
        faults = [*loader_faults(spec.settings.loader)]
        faults += inference_faults(spec) if study.task == "inference" else []
        _raise_for([_fault(spec, fault) for fault in faults][:1])
    return cells, unsupported


def _fault(spec: RunSpec, fault: str) -> str:
    return f"config/studies/{spec.study}.yaml: cell {spec.cell} on {spec.device}: {fault}"


def _protocol(project: Project, name: str, device: str) -> StudyProtocol:
    """A study's protocol, adapted for a device."""
    study, entry = project.studies[name], project.devices[device]
    protocol = adapted(study.protocol, study, "protocol", adapt_keys(device, entry))
    if project.config.repeats is not None:
        protocol["repeats"] = project.config.repeats
    origin = f"config/studies/{name}.yaml, adapted for {device}"
    return convert(protocol, StudyProtocol, origin)


def _common(project: Project, name: str, device: str, protocol: StudyProtocol) -> RunSpec:
    """What all runs of a study on a device share: its settings and protocol, adapted."""
    entry, whole = project.devices[device], study_settings(project, name, device)
    return RunSpec(
        task=project.studies[name].task,
        study=name,
        device=device,
        kind=entry.kind,
        count=entry.count,
        nodes=entry.nodes,
        launcher=_launcher(entry, whole),
        software=entry.software,
        cell="",
        levels={},
        repeat=1,
        seed=protocol.seed,
        dataset=project.config.dataset,
        settings=whole,
        protocol=Protocol(**{key: getattr(protocol, key) for key in Protocol.__struct_fields__}),
    )


def _launcher(entry: Device, settings: Settings) -> Launcher:
    """The launcher of a device that names none. Sharding is told its ranks even where it is one."""
    if entry.launcher:
        return entry.launcher
    if entry.nodes > 1:
        return "srun"
    return "single" if entry.count == 1 and settings.train.strategy != "fsdp" else "torchrun"


def _lacks(study: Study, device: Device, levels: dict[str, Level]) -> str:
    """The capabilities that a cell needs and the device lacks, or an empty text."""
    needed = (
        study.factors[factor].requires.get(level_text(level)) for factor, level in levels.items()
    )
    return ", ".join(need for need in needed if need and need not in device.able)
