"""The facts that a study's pages show besides results, from the study's plan."""

from typing import Literal

from msgspec.structs import asdict, replace

from feedrate.config.devices import Device
from feedrate.config.plan import published_settings, study_settings
from feedrate.config.settings import Task
from feedrate.config.study import (
    FIGURES,
    TABLES,
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


class StudyContext(Strict, kw_only=True):
    """The facts of a study that any of its pages may show."""

    study: Name
    title: str
    question: str
    task: Task
    origin: Source
    measured: list[Name]
    devices: dict[Name, Device]
    """The measured ones, and those of published numbers."""
    limits_gib: dict[Name, Positive | None]
    """The study's memory limit for a process, by device."""
    setups: dict[Name, Setup]
    factors: dict[Name, Factor]
    baseline: dict[str, Level]
    within: list[Name]
    ladder: list[Name]
    exclude: list[Exclude]
    tables: list[Table]
    figures: list[Figure]
    order: list[str]
    """The anchors of all tables and figures (`table-cells`), in the order of the first page."""
    noise_share: Positive  # by which two single runs are assumed to differ at most
    smallest_effect: Share  # the gain from which a change is worth making
    published: list[Published]
    sources: Sources
    scores: list[BenchmarkScore]  # published ones on Winoground
    accuracies: list[BenchmarkAccuracy]  # published ones on other benchmarks
    examples: str
    """The copy of Winoground that models were scored on, in words; empty where there is none."""
    peaks: dict[Name, dict[Name, Positive | None]]
    """The data sheet's peaks by published device and precision, TFLOP/s."""
    precisions: list[Name]  # of each published number's cell, in their order

    def label(self, device: str) -> str:
        """The device's display name."""
        return self.devices[device].label if device in self.devices else device

    def limit(self, device: str) -> str:
        """The study's memory limit for a process in words; empty where it sets none."""
        gib = self.limits_gib.get(device)
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
    """The same with what a table or a figure is, under its own title."""

    part: Part
    kind: Name
    factor: Name
    """The factor along the page: the columns of a table, the horizontal axis of a figure."""
    columns: list[dict[str, Level]] = []
    epoch_samples: int | None = None


def page_settings(study: StudyContext, page: Table | Figure) -> PageSettings:
    """What a table or a figure of a study is made from, besides results."""
    if isinstance(page, Table):
        along = page.factor
        own = {"part": "table", "columns": page.columns, "epoch_samples": page.epoch_samples}
    else:
        along, own = page.x, {"part": "figure"}
    own |= {"title": page.title, "kind": page.kind, "factor": along or next(iter(study.factors))}
    return PageSettings(**asdict(study) | own)


def study_context(plan: StudyPlan) -> StudyContext:
    """The facts of a study."""
    project, study, rows = plan.project, plan.study, plan.published
    trained = (published_settings(project, plan.name, row).train for row in rows)
    return subset(
        StudyContext,
        study,
        study=plan.name,
        origin=study.source,
        measured=plan.measured,
        devices=project.devices,
        limits_gib={
            name: study_settings(project, plan.name, name).train.memory_gib
            for name in project.devices
        },
        setups=plan.setups,
        factors=_shown(plan),
        order=_order(study.figures, study.tables),
        noise_share=study.thresholds.noise_share,
        smallest_effect=study.thresholds.smallest_effect,
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


def _order(figures: list[Figure], tables: list[Table]) -> list[str]:
    """Anchors by the places of their kinds; equal places put figures before tables."""
    of_figure, of_table = map(plugins.kinds, (FIGURES, TABLES))
    places = {f"figure-{figure.name}": of_figure[figure.kind].place for figure in figures}
    places |= {f"table-{table.name}": of_table[table.kind].place for table in tables}
    return sorted(places, key=places.__getitem__)


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
