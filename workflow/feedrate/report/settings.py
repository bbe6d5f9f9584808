"""What a table, a figure and the overview show besides results: plain values for Snakemake.

A rule passes them as one dict param, so a job runs again when, and only when, something that it
shows has changed. The Snakefile imports this module at every parse: nothing here is heavy.
"""

import html
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from feedrate.config.plan import Plan, Project
from feedrate.config.published import BenchmarkScore, Published
from feedrate.config.reading import convert, convert_text
from feedrate.config.settings import Task
from feedrate.config.spec import RunSpec
from feedrate.config.study import Exclude, Factor, Figure, Source, Table
from feedrate.config.values import Level, Name, Strict
from feedrate.config.workflow import (
    GeneratedExamples,
    Hub,
    HubExamples,
    LocalExamples,
    WorkflowConfig,
)
from feedrate.core import paths
from feedrate.models.checkpoint import is_on_hub

T = TypeVar("T")

_NEEDS: dict[str, tuple[str, ...]] = {
    "published": (paths.CELLS_CSV,),
    "cells": (paths.CELLS_CSV,),
    "speedup": (paths.CELLS_CSV,),
    "scaling": (paths.CELLS_CSV,),
    "largest": (paths.CELLS_CSV,),
    "quality": (paths.QUALITY_CSV,),
    "equal": (paths.CELLS_CSV,),
    "gain": (paths.QUALITY_CSV,),
    "training": (paths.CELLS_CSV,),
    "latency": (paths.CELLS_CSV, paths.RESULTS_CSV),
    "ladder": (paths.CELLS_CSV,),
    "reach": (paths.CELLS_CSV,),
    "claims": (paths.CLAIMS_CSV,),
    "ceilings": (paths.CELLS_CSV,),
    "fit": (paths.FIT_CSV,),
    "editions": (),
    "winoground": (paths.QUALITY_CSV,),
    "data": (paths.DATA_REPORT,),
    "answer": (paths.CELLS_CSV, paths.RESULTS_CSV),
    "throughput": (paths.CELLS_CSV, paths.RESULTS_CSV),
    "step_time": (paths.CELLS_CSV, paths.RESULTS_CSV),
    "loss": (paths.RESULTS_CSV,),
    "steps": (paths.RESULTS_CSV,),
    "warmup": (paths.RESULTS_CSV,),
}
_WITH_PUBLISHED = ("published", "speedup", "editions", "throughput", "reach")


class DeviceInfo(Strict, kw_only=True):
    """What pages say of a device."""

    label: str
    count: int
    capabilities: list[Name]
    family: Name | None = None
    """The entry that this one is another count of."""


class Setup(Strict, kw_only=True):
    """What was trained on a device, and how it was measured."""

    model: str
    size: str
    batch_size: int
    count: int
    precision: str
    steps: int
    warmup_steps: int
    repeats: int


class Shown(Strict, kw_only=True):
    """What every page of a study knows."""

    study: Name
    origin: Source
    measured: list[Name]
    devices: dict[Name, DeviceInfo]
    factors: dict[Name, Factor]
    baseline: dict[str, Level]
    within: list[Name] = []
    """Factors that no comparison crosses."""
    ladder: list[Name] = []
    """Factors that are climbed until memory is full: running out of it is a result."""
    exclude: list[Exclude]
    published: list[Published] = []

    def label(self, device: str) -> str:
        """The device's name for people."""
        return self.devices[device].label if device in self.devices else device


class TableSettings(Shown):
    """Settings of `python -m feedrate.report.table`."""

    table: Table
    scores: list[BenchmarkScore] = []
    """Published ones (kind: winoground)."""
    examples: str = ""
    """Which copy of Winoground ours are of, in words; empty: none."""


class FigureSettings(Shown):
    """Settings of `python -m feedrate.report.figure`."""

    figure: Figure


class StudySettings(Shown):
    """A study's part of the overview."""

    title: str
    question: str
    task: Task
    size: str
    setups: dict[Name, Setup]
    tables: list[Table]
    figures: list[Figure]


class OverviewSettings(Strict, kw_only=True):
    """Settings of `python -m feedrate.report.overview`."""

    studies: list[StudySettings]


def inputs_of(kind: str, study: str, dataset: str) -> list[str]:
    """The result files that a table or figure of this kind is made from."""
    return [path.format(study=study, dataset=dataset) for path in _NEEDS[kind]]


def table_settings(project: Project, study: str, table: str) -> dict[str, Any]:
    """The `--settings` of a table of a study."""
    entry = next(t for t in project.studies[study].tables if t.name == table)
    shown = _shown(project, study, entry.kind)
    if entry.kind == "winoground":
        shown |= {"scores": project.scores.get(study, []), "examples": _examples(project.config)}
    return to_param(TableSettings(**shown, table=entry))


def figure_settings(project: Project, study: str, figure: str) -> dict[str, Any]:
    """The `--settings` of a figure of a study."""
    entry = next(f for f in project.studies[study].figures if f.name == figure)
    return to_param(FigureSettings(**_shown(project, study, entry.kind), figure=entry))


def overview_settings(project: Project, plan: Plan) -> dict[str, Any]:
    """The `--settings` of the overview of all studies."""
    setups: dict[str, dict[str, Setup]] = {name: {} for name in project.studies}
    for spec in plan.runs.values():  # repeat 1 of all cells first: the last one tells how many
        setups[spec.study][spec.device] = _setup(spec)
    studies = [
        StudySettings(
            **_shown(project, name, "published"),
            title=study.title,
            question=study.question,
            task=study.task,
            size=study.settings.model.size,
            setups=setups[name],
            tables=study.tables,
            figures=study.figures,
        )
        for name, study in project.studies.items()
    ]
    return to_param(OverviewSettings(studies=studies))


def to_param(settings: Strict) -> dict[str, Any]:
    """`settings` as a Snakemake param. Markup is escaped in every text: the report page keeps
    params inside a script element, which a text with a closing tag would end."""
    return _map_texts(msgspec.to_builtins(settings), lambda text: html.escape(text, quote=False))


def from_param(text: str, kind: type[T]) -> T:
    """Read what `to_param` wrote and Snakemake printed. Raises ConfigError."""
    values = convert_text(text, dict[str, Any], "--settings")
    return convert(_map_texts(values, html.unescape), kind, "--settings")


def _shown(project: Project, study: str, kind: str) -> dict[str, Any]:
    entry = project.studies[study]
    published = project.published[study]
    names = dict.fromkeys([*project.config.devices, *(row.device for row in published)])
    return {
        "study": study,
        "origin": entry.source,
        "measured": project.config.devices,
        "devices": {
            name: DeviceInfo(
                label=device.label,
                count=device.count,
                capabilities=device.able,
                family=device.variant_of,
            )
            for name in names
            if (device := project.devices.get(name))
        },
        "factors": entry.factors,
        "baseline": entry.baseline,
        "within": entry.within,
        "ladder": entry.ladder,
        "exclude": entry.exclude,
        "published": published if kind in _WITH_PUBLISHED else [],
    }


def _examples(config: WorkflowConfig) -> str:
    """The copy of Winoground that models are scored on, in words; empty where there is none."""
    match config.winoground_sets.get(config.winoground or ""):
        case GeneratedExamples(examples=count):
            return f"a drawn stand-in of {count} examples, not Winoground itself"
        case HubExamples(name=name, revision=revision):
            return f"{name} at {revision}"
        case LocalExamples():
            return f"a local copy, {config.winoground}"
        case _:
            return ""


def _setup(spec: RunSpec) -> Setup:
    settings, protocol = spec.settings, spec.protocol
    return Setup(
        model=settings.model.name,
        size=settings.model.size,
        batch_size=settings.train.batch_size,
        count=spec.count,
        precision=settings.train.precision,
        steps=protocol.steps,
        warmup_steps=protocol.warmup_steps,
        repeats=spec.repeat,
    )


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {_map_texts(k, change): _map_texts(v, change) for k, v in value.items()}
    return value


# What a model's card says beside its record and its scores: plain values for Snakemake.


class CardSettings(Strict, kw_only=True):
    """Settings of `python -m feedrate.report.card`."""

    title: str
    """The study's."""
    device: str
    """The device's name for people."""
    base_model: str | None = None
    """Where the weights came from, if that is a repository of the hub."""
    dataset: str | None = None
    """The hub's repository of the data, if they are from there."""
    dataset_revision: str | None = None
    repository: str | None = None
    """Where the model is pushed."""
    place: str
    """The folder there."""


def card_settings(project: Project, spec: RunSpec) -> dict[str, Any]:
    """The `--settings` of the card of a run's model."""
    checkpoint = spec.settings.model.checkpoint
    data = project.config.datasets[spec.dataset]
    settings = CardSettings(
        title=project.studies[spec.study].title,
        device=project.devices[spec.device].label,
        base_model=checkpoint if checkpoint and is_on_hub(checkpoint) else None,
        dataset=data.name if isinstance(data, Hub) else None,
        dataset_revision=data.revision if isinstance(data, Hub) else None,
        repository=project.config.push_to_hub if spec.repeat == 1 else None,
        place=place(spec),
    )
    return to_param(settings)


def place(spec: RunSpec) -> str:
    """The folder of a cell's model in a repository that holds those of all cells."""
    return f"{spec.study}/{spec.device}/{spec.cell}"
