"""Settings of the report's jobs, as plain values in one dict param: a job reruns if and only if
something that it shows has changed. The Snakefile imports this module, so it imports nothing heavy.
"""

import html
import json
from typing import Any, Literal, TypeVar

import msgspec

from feedrate.config.plan import Plan, protocols, published_settings, study_settings
from feedrate.config.project import Project
from feedrate.config.settings import Task
from feedrate.config.sheets import Sources
from feedrate.config.study import (
    BenchmarkAccuracy,
    BenchmarkScore,
    Exclude,
    Factor,
    Figure,
    Published,
    Source,
    Table,
)
from feedrate.config.values import Level, Name, Positive, Share, Strict, convert, subset
from feedrate.config.workflow import (
    Generated,
    GeneratedExamples,
    HubExamples,
    LocalExamples,
    WorkflowConfig,
    find_dataset,
)
from feedrate.core import paths, plugins
from feedrate.results.params import sources_of

T = TypeVar("T")
Part = Literal["table", "figure"]

FILES = {
    "cells": paths.CELLS_CSV,
    "runs": paths.RESULTS_CSV,
    "claims": paths.CLAIMS_CSV,
    "data": paths.DATA_REPORT,
}
"""The files that tables and figures name in NEEDS. `published`, `peaks` and `winoground` come from
the configuration."""


class DeviceInfo(Strict, kw_only=True):
    """The part of a device's entry that pages show."""

    label: str
    count: int
    capabilities: list[Name]
    family: Name | None = None  # the registry entry that this device varies by its count
    limit_gib: Positive | None = None  # the study's memory limit for a process


class Setup(Strict, kw_only=True):
    """How a device was measured."""

    steps: int
    warmup_steps: int
    repeats: int
    drawn: bool = False  # its pictures are drawn by the suite


class StudyContext(Strict, kw_only=True):
    """The facts of a study that any of its pages may show."""

    study: Name
    origin: Source
    measured: list[Name]
    devices: dict[Name, DeviceInfo]
    factors: dict[Name, Factor]
    baseline: dict[str, Level]
    within: list[Name] = []  # factors that no comparison crosses
    ladder: list[Name] = []  # factors whose levels ascend until memory is full
    exclude: list[Exclude]
    noise_share: Positive = 0.1  # by which two single runs are assumed to differ at most
    smallest_effect: Share = 0.03  # the gain from which a change is worth making
    published: list[Published] = []
    sources: Sources = Sources()

    def label(self, device: str) -> str:
        """The device's display name."""
        return self.devices[device].label if device in self.devices else device

    def limit(self, device: str) -> str:
        """The study's memory limit for a process in words; empty where it sets none."""
        gib = self.devices[device].limit_gib if device in self.devices else None
        return f"the study lets a process reserve {gib:g} GiB beyond its libraries" if gib else ""

    def factor_label(self, factor: str) -> str:
        """The factor's display name."""
        return self.factors[factor].label or factor

    @property
    def factor_labels(self) -> str:
        """The display names of all factors: the heading of a column of cells."""
        return ", ".join(map(self.factor_label, self.factors))

    def baseline_of(self, levels: dict[str, Level]) -> dict[str, Level]:
        """The cell that a cell with these levels is compared with."""
        return {**self.baseline, **{name: levels[name] for name in self.within}}


class PageSettings(StudyContext):
    """Settings of the job `render-page`: one table or figure."""

    part: Part
    kind: Name
    title: str
    factor: Name
    """The factor along the page: the columns of a table, the horizontal axis of a figure."""
    columns: list[dict[str, Level]] = []
    epoch_samples: int | None = None
    scores: list[BenchmarkScore] = []  # published ones on Winoground
    accuracies: list[BenchmarkAccuracy] = []  # published ones on other benchmarks
    peaks: dict[Name, dict[Name, Positive | None]] = {}
    """The data sheet's peaks by published device and precision, TFLOP/s."""
    precisions: list[Name] = []  # of each published number's cell, in their order
    examples: str = ""
    """The copy of Winoground that models were scored on, in words; empty where there is none."""


class StudySettings(StudyContext):
    """A study's part of the overview."""

    title: str
    question: str
    task: Task
    setups: dict[Name, Setup]
    tables: list[Table]
    figures: list[Figure]
    order: list[str]
    """The anchors of all tables and figures (`table-cells`), in the order of the page."""


class OverviewSettings(Strict, kw_only=True):
    """Settings of the job `write-overview`."""

    studies: list[StudySettings]


def inputs_of(part: Part, kind: str, study: str, dataset: str) -> list[str]:
    """The result files that a table or figure of this kind reads."""
    needs = _declared(part, "NEEDS")[kind]
    return [FILES[need].format(study=study, dataset=dataset) for need in needs if need in FILES]


def find_page(project: Project, study: str, part: Part, name: str) -> Table | Figure:
    """A table or figure of a study, by name."""
    pages: list[Any] = getattr(project.studies[study], f"{part}s")
    return next(page for page in pages if page.name == name)


def page_settings(project: Project, study: str, part: Part, name: str) -> dict[str, Any]:
    """The `--settings` of a table or figure of a study."""
    page = find_page(project, study, part, name)
    needs = _declared(part, "NEEDS")[page.kind]
    along = page.x if isinstance(page, Figure) else page.factor
    options: dict[str, Any] = {"factor": along or next(iter(project.studies[study].factors))}
    if "winoground" in needs:
        options["scores"] = project.scores.get(study, [])
        options["accuracies"] = project.accuracies.get(study, [])
        options["examples"] = _examples(project.config)
    if "peaks" in needs:
        rows = project.published[study]
        trained = (published_settings(project, study, row).train for row in rows)
        options["precisions"] = [train.precision.removesuffix("_full") for train in trained]
        options["peaks"] = {
            row.device: {p.precision: p.datasheet_tflops for p in project.devices[row.device].peaks}
            for row in rows
        }
    context = _context(project, study, "published" in needs)
    return to_param(subset(PageSettings, page, **context, **options, part=part))


def overview_settings(project: Project, plan: Plan) -> dict[str, Any]:
    """The `--settings` of the overview of all studies."""
    setups: dict[str, dict[str, Setup]] = {name: {} for name in project.studies}
    planned = protocols(project)
    for spec in plan.runs.values():
        setups[spec.study][spec.device] = subset(
            Setup,
            spec.protocol,
            drawn=isinstance(find_dataset(project.config, spec.dataset), Generated),
            repeats=planned[spec.study][spec.device].repeats,
        )
    studies = [
        subset(
            StudySettings,
            study,
            **_context(project, name, published=True),
            setups=setups[name],
            order=_order(study.figures, study.tables),
        )
        for name, study in project.studies.items()
    ]
    return to_param(OverviewSettings(studies=studies))


def to_param(settings: Strict) -> dict[str, Any]:
    """`settings` as a Snakemake param. Markup is escaped in every text: the report page keeps
    params inside a script element, which a closing tag in a text would end."""
    param: dict[str, Any] = json.loads(html.escape(msgspec.json.encode(settings).decode(), False))
    return param


def from_param(param: dict[str, Any], kind: type[T]) -> T:
    """Read what `to_param` made. Raises ConfigError."""
    return convert(json.loads(html.unescape(json.dumps(param))), kind, "--settings")


def _declared(part: str, constant: str) -> dict[str, Any]:
    return plugins.declared(f"feedrate.report.{part}s", constant)


def _order(figures: list[Figure], tables: list[Table]) -> list[str]:
    """Anchors by the ORDER of their kinds; equal numbers put figures before tables."""
    of_figure, of_table = _declared("figure", "ORDER"), _declared("table", "ORDER")
    places = {f"figure-{figure.name}": of_figure[figure.kind] for figure in figures}
    places |= {f"table-{table.name}": of_table[table.kind] for table in tables}
    return sorted(places, key=places.__getitem__)


def _context(project: Project, study: str, published: bool) -> dict[str, Any]:
    entry, rows = project.studies[study], project.published[study]
    names = dict.fromkeys([*project.devices_of(study), *(row.device for row in rows)])
    context = subset(
        StudyContext,
        entry,
        factors=_shown(project, study),
        study=study,
        origin=entry.source,
        measured=project.devices_of(study),
        noise_share=entry.thresholds.noise_share,
        smallest_effect=entry.thresholds.smallest_effect,
        devices={
            name: subset(
                DeviceInfo,
                device,
                capabilities=device.able,
                family=device.variant_of,
                limit_gib=study_settings(project, study, name).train.memory_gib,
            )
            for name in names
            if (device := project.devices.get(name))
        },
        published=rows if published else [],
        sources=sources_of(project, study) if published else Sources(),
    )
    return msgspec.structs.asdict(context)


def _shown(project: Project, study: str) -> dict[str, Factor]:
    """The factors without levels that the study leaves out on all devices and nobody published."""
    entry, rows = project.studies[study], project.published[study]
    able = [project.devices[name].able for name in project.devices_of(study)]

    def has(name: str, level: Level) -> bool:
        # A part with `unless` keeps cells of the level.
        parts = [part for part in entry.exclude if not part.unless]
        left_out = all(any(part.covers({name: level}, each) for part in parts) for each in able)
        return not left_out or any(row.levels.get(name) == level for row in rows)

    return {
        name: msgspec.structs.replace(factor, levels=[x for x in factor.levels if has(name, x)])
        for name, factor in entry.factors.items()
    }


def _examples(config: WorkflowConfig) -> str:
    match config.winoground_sets.get(config.winoground or ""):
        case GeneratedExamples(examples=count):
            return f"a drawn stand-in of {count} examples, not Winoground itself"
        case HubExamples(name=name, revision=revision):
            return f"{name} at {revision}"
        case LocalExamples():
            return f"a local copy, {config.winoground}"
        case _:
            return ""
