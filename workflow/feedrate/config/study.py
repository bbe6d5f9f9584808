"""A study: one published experiment or one question, as data."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from feedrate.config.base import Count, Level, Name, Positive, Strict
from feedrate.config.inference import Task
from feedrate.config.settings import Settings, StudyProtocol

TABLES, FIGURES = "feedrate.report.tables", "feedrate.report.figures"
"""The packages whose files are the kinds of tables and figures."""

Bundle = dict[str, Level | list[str]]
"""Settings, as `loader.workers`, with their values."""


class Source(Strict, kw_only=True):
    """Where a study's published numbers and statements come from."""

    title: Annotated[str, Meta(min_length=1)]
    address: str = ""
    editions: Annotated[list[str], Meta(description="States of the source, oldest first.")] = []


class Factor(Strict, kw_only=True):
    """What a study varies: one setting, or a bundle of them that has a name."""

    sets: Annotated[str, Meta(description="The setting that it sets, as `loader.workers`.")] = ""
    bundles: Annotated[
        dict[str, Bundle],
        Meta(description="In place of `sets`: level to all settings that it sets, with values."),
    ] = {}
    levels: Annotated[list[Level], Meta(description="Its values.", min_length=1)]
    label: Annotated[str, Meta(description="Name on axes and in tables.")] = ""
    requires: Annotated[
        dict[str, Name],
        Meta(description="Level (as text) to the capability that a device needs for it."),
    ] = {}


class Exclude(Strict, kw_only=True):
    """Cells that are left out on purpose: those that have all of these levels."""

    levels: dict[str, Level]
    unless: Annotated[
        dict[str, list[Level]],
        Meta(description="Factor to levels: cells that have one of these stay."),
    ] = {}
    unless_able: Annotated[
        Name | None,
        Meta(description="Devices with this capability have these cells all the same."),
    ] = None
    why: Annotated[str, Meta(min_length=1)]

    def covers(self, levels: Mapping[str, Level], able: Collection[str]) -> bool:
        """Whether a cell with these levels is left out on a device with these capabilities."""
        stays = any(levels.get(factor) in kept for factor, kept in self.unless.items())
        return self.levels.items() <= levels.items() and not stays and self.unless_able not in able


class Claim(Strict, kw_only=True):
    """A statement of the source as an expression over cells."""

    id: Name
    text: Annotated[str, Meta(description="The statement, in our words.", min_length=1)]
    expression: Annotated[
        str,
        Meta(
            description="Ratio of cells, as `gaudi2[workers=2] / h100[workers=2]`; factors not "
            "named stand at the baseline; `*` for the device: each device that was measured.",
            min_length=1,
        ),
    ]
    published: Annotated[Positive | None, Meta(description="The value that the source prints.")] = (
        None
    )
    at_least: Annotated[
        float | None, Meta(description="For a statement in words: the ratio must reach this.")
    ] = None
    fits: Annotated[
        bool | None,
        Meta(description="In place of a ratio, of one cell: it trains, or runs out of memory."),
    ] = None
    edition: str = ""
    metric: Annotated[
        Literal["samples_per_s", "peak_memory_gib", "tflops_per_device", "loss_last", "loss_end"],
        Meta(description="The column of the results that the ratio is of."),
    ] = "samples_per_s"


class Table(Strict, kw_only=True):
    """A table of the report."""

    name: Name
    kind: Annotated[Name, Meta(description="File in workflow/feedrate/report/tables.")]
    title: Annotated[str, Meta(min_length=1)]
    caption: Annotated[str, Meta(description="File in report/captions, without .rst.")]
    columns: Annotated[
        list[dict[str, Level]], Meta(description="Cells to show, as levels (kind: published).")
    ] = []
    factor: Annotated[Name | None, Meta(description="The factor that spans the table.")] = None
    epoch_samples: Annotated[
        Count | None, Meta(description="Samples of an epoch whose time to tell (kind: training).")
    ] = None


class Figure(Strict, kw_only=True):
    """A figure of the report."""

    name: Name
    kind: Annotated[Name, Meta(description="File in workflow/feedrate/report/figures.")]
    title: Annotated[str, Meta(min_length=1)]
    caption: Annotated[str, Meta(description="File in report/captions, without .rst.")]
    x: Annotated[Name | None, Meta(description="The factor on the horizontal axis.")] = None


class Thresholds(Strict, kw_only=True):
    """Where verdicts and statistics draw their lines; changing them reruns no training."""

    input_bound_wait_share: Annotated[
        float, Meta(description="Data-wait share from which a cell is input-bound.", ge=0, le=1)
    ] = 0.10
    compute_bound_wait_share: Annotated[
        float, Meta(description="Data-wait share up to which a cell is compute-bound.", ge=0, le=1)
    ] = 0.02
    headroom: Annotated[
        Positive, Meta(description="Loader rate over consumption that shows headroom.")
    ] = 1.3
    replay_gain: Annotated[
        Positive,
        Meta(description="Rate of the model alone over the measured rate that shows a loss."),
    ] = 1.1
    memory_pressed_share: Annotated[
        float, Meta(description="Peak memory over the device's from which it presses.", ge=0, le=1)
    ] = 0.95
    noise_share: Annotated[
        Positive, Meta(description="Spread of repeats, (max - min) / median, flagged as noisy.")
    ] = 0.10
    confidence: Annotated[
        float, Meta(description="Level of the bootstrap intervals.", gt=0, lt=1)
    ] = 0.95
    claim_tolerance: Annotated[
        Positive, Meta(description="A claimed ratio holds within this share of its value.")
    ] = 0.05


class Study(Strict, kw_only=True):
    """One file in config/studies/; the file's name is the study's."""

    title: Annotated[str, Meta(min_length=1)]
    question: Annotated[str, Meta(description="What the report answers.", min_length=1)]
    task: Annotated[
        Task, Meta(description="What its runs do: training steps, or forward passes alone.")
    ] = "training"
    source: Source
    settings: Settings
    protocol: StudyProtocol
    ladder: Annotated[
        list[Name],
        Meta(
            description="Factors whose later levels need more memory: what ran out of it is not "
            "tried with more."
        ),
    ] = []
    adapt: Annotated[
        dict[Name, dict[str, Any]],
        Meta(description="Device or kind to settings, protocol and bundles that differ there."),
    ] = {}
    factors: Annotated[dict[Name, Factor], Meta(description="What varies.", min_length=1)]
    baseline: Annotated[
        dict[str, Level], Meta(description="The level of each factor that ratios refer to.")
    ]
    within: Annotated[
        list[Name],
        Meta(description="Factors that no speed-up crosses: each level has its own baseline."),
    ] = []
    exclude: list[Exclude] = []
    published: Annotated[list[str], Meta(description="Files in config/published/.")] = []
    published_scores: Annotated[
        list[str], Meta(description="Files in config/published/ with scores on Winoground.")
    ] = []
    claims: list[Claim] = []
    tables: list[Table] = []
    figures: list[Figure] = []
    thresholds: Thresholds = Thresholds()
