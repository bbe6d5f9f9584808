"""The facts that a study's pages show besides results, from the study's plan."""

from typing import Any, Literal

from msgspec.structs import asdict, replace

from feedrate.config.plan import published_settings, study_settings
from feedrate.config.project import Project
from feedrate.config.settings import Task
from feedrate.config.study import (
    BenchmarkAccuracy,
    BenchmarkScore,
    Exclude,
    Factor,
    Figure,
    Published,
    Source,
    Sources,
    Table,
)
from feedrate.config.values import Level, Name, Positive, Share, Strict, subset
from feedrate.config.workflow import GeneratedExamples, HubExamples, LocalExamples, WorkflowConfig
from feedrate.core import plugins
from feedrate.results.study_plan import Setup, StudyPlan

Part = Literal["table", "figure"]


class DeviceInfo(Strict, kw_only=True):
    """The part of a device's entry that pages show."""

    label: str
    count: int
    capabilities: list[Name]
    family: Name | None = None  # the registry entry that this device varies by its count
    limit_gib: Positive | None = None  # the study's memory limit for a process


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
    scores: list[BenchmarkScore] = []  # published ones on Winoground
    accuracies: list[BenchmarkAccuracy] = []  # published ones on other benchmarks
    examples: str = ""
    """The copy of Winoground that models were scored on, in words; empty where there is none."""
    peaks: dict[Name, dict[Name, Positive | None]] = {}
    """The data sheet's peaks by published device and precision, TFLOP/s."""
    precisions: list[Name] = []  # of each published number's cell, in their order

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
    """What a table or a figure is made from, besides results."""

    part: Part
    kind: Name
    title: str
    factor: Name
    """The factor along the page: the columns of a table, the horizontal axis of a figure."""
    columns: list[dict[str, Level]] = []
    epoch_samples: int | None = None


class StudySettings(StudyContext):
    """A study's part of the first page."""

    title: str
    question: str
    task: Task
    setups: dict[Name, Setup]
    tables: list[Table]
    figures: list[Figure]
    order: list[str]
    """The anchors of all tables and figures (`table-cells`), in the order of the page."""


def page_settings(plan: StudyPlan, page: Table | Figure) -> PageSettings:
    """What a table or a figure of a study is made from."""
    along = page.x if isinstance(page, Figure) else page.factor
    return subset(
        PageSettings,
        page,
        **_context(plan),
        part="figure" if isinstance(page, Figure) else "table",
        factor=along or next(iter(plan.study.factors)),
    )


def study_settings_of(plan: StudyPlan) -> StudySettings:
    """A study's part of the first page."""
    order = _order(plan.study.figures, plan.study.tables)
    return subset(StudySettings, plan.study, **_context(plan), setups=plan.setups, order=order)


def _order(figures: list[Figure], tables: list[Table]) -> list[str]:
    """Anchors by the ORDER of their kinds; equal numbers put figures before tables."""
    of_figure, of_table = (
        plugins.declared(f"feedrate.report.{part}", "ORDER") for part in ("figures", "tables")
    )
    places = {f"figure-{figure.name}": of_figure[figure.kind] for figure in figures}
    places |= {f"table-{table.name}": of_table[table.kind] for table in tables}
    return sorted(places, key=places.__getitem__)


def _context(plan: StudyPlan) -> dict[str, Any]:
    project, study, rows = plan.project, plan.study, plan.published
    trained = (published_settings(project, plan.name, row).train for row in rows)
    context = subset(
        StudyContext,
        study,
        factors=_shown(plan),
        study=plan.name,
        origin=study.source,
        measured=plan.measured,
        noise_share=study.thresholds.noise_share,
        smallest_effect=study.thresholds.smallest_effect,
        devices={name: _device(project, plan.name, name) for name in project.devices},
        published=rows,
        sources=plan.sources,
        scores=project.scores.get(plan.name, []),
        accuracies=project.accuracies.get(plan.name, []),
        examples=_examples(project.config),
        precisions=[train.precision.removesuffix("_full") for train in trained],
        peaks={
            row.device: {p.precision: p.datasheet_tflops for p in project.devices[row.device].peaks}
            for row in rows
        },
    )
    return asdict(context)


def _device(project: Project, study: str, name: str) -> DeviceInfo:
    device = project.devices[name]
    return subset(
        DeviceInfo,
        device,
        capabilities=device.able,
        family=device.variant_of,
        limit_gib=study_settings(project, study, name).train.memory_gib,
    )


def _shown(plan: StudyPlan) -> dict[str, Factor]:
    """The factors without levels that the study leaves out on all devices and nobody published."""
    able = [plan.project.devices[name].able for name in plan.measured]

    def has(name: str, level: Level) -> bool:
        # A part with `unless` keeps cells of the level.
        parts = [part for part in plan.study.exclude if not part.unless]
        left_out = all(any(part.covers({name: level}, each) for part in parts) for each in able)
        return not left_out or any(row.levels.get(name) == level for row in plan.published)

    return {
        name: replace(factor, levels=[level for level in factor.levels if has(name, level)])
        for name, factor in plan.study.factors.items()
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
