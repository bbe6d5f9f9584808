"""A study: one published experiment or one question, as data, and the settings of its levels."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from feedrate.config.devices import Capability, Device
from feedrate.config.reading import merged
from feedrate.config.settings import Settings, Task
from feedrate.config.spec import StudyProtocol
from feedrate.config.values import Count, Level, Name, Positive, Share, Strict, about, level_text

Bundle = dict[str, Level | list[str]]
"""Settings, such as `loader.workers`, with their values."""


class Source(Strict, kw_only=True):
    """The source of a study's published numbers and statements."""

    title: Annotated[str, Meta(min_length=1)]
    address: str = ""
    editions: Annotated[list[str], about("States of the source, oldest first.")] = []


class Factor(Strict, kw_only=True):
    """What a study varies: one setting, or a named bundle of settings."""

    sets: Annotated[str, about("The setting that it sets, such as `loader.workers`.")] = ""
    bundles: Annotated[
        dict[str, Bundle],
        about("Instead of `sets`: level to all settings that it sets, with values."),
    ] = {}
    levels: Annotated[list[Level], Meta(description="Its values.", min_length=1)]
    label: Annotated[str, about("Name on axes and in tables.")] = ""
    requires: Annotated[dict[str, Capability], about("Level, as text, to what it requires.")] = {}


class Exclude(Strict, kw_only=True):
    """Cells left out on purpose: those with all of these levels."""

    levels: dict[str, Level]
    unless: Annotated[dict[str, list[Level]], about("Factor to levels: their cells are kept.")] = {}
    unless_able: Annotated[Capability | None, about("Devices that can do this keep them.")] = None
    why: Annotated[str, Meta(min_length=1)]

    def covers(self, levels: Mapping[str, Level], able: Collection[str]) -> bool:
        """Whether a cell with these levels is left out on a device with these capabilities."""
        kept = any(levels.get(factor) in values for factor, values in self.unless.items())
        return self.levels.items() <= levels.items() and not kept and self.unless_able not in able


class Claim(Strict, kw_only=True):
    """A statement of the source as an expression over cells."""

    id: Name
    text: Annotated[str, Meta(description="The statement, in our words.", min_length=1)]
    expression: Annotated[
        str,
        Meta(
            description="Ratio of cells, such as `gaudi2[workers=2] / h100[workers=2]`; other "
            "factors are at the baseline; `*` for the device: each device that was measured.",
            min_length=1,
        ),
    ]
    published: Annotated[Positive | None, about("The value that the source prints.")] = None
    at_least: Annotated[float | None, about("For a statement in words: the least ratio.")] = None
    fits: Annotated[bool | None, about("Not a ratio, but whether a cell fits in memory.")] = None
    edition: str = ""
    metric: Annotated[
        Literal["samples_per_s", "peak_memory_gib", "tflops_per_device", "loss_last", "loss_end"],
        about("The column of the results whose ratio it is."),
    ] = "samples_per_s"


TABLES, FIGURES = "feedrate.report.tables", "feedrate.report.figures"
"""The packages of the kinds of tables and figures, which are listed and not imported."""


class Table(Strict, kw_only=True):
    """A table of the report."""

    name: Name
    kind: Annotated[Name, about("A file in workflow/feedrate/report/tables, without .py.")]
    title: Annotated[str, Meta(min_length=1)]
    caption: Annotated[str, about("File in report/captions, without .rst.")]
    columns: Annotated[list[dict[str, Level]], about("Cells to show (kind: published).")] = []
    factor: Annotated[Name | None, about("The factor that spans the table.")] = None
    epoch_samples: Annotated[Count | None, about("Samples of an epoch (kind: training).")] = None


class Figure(Strict, kw_only=True):
    """A figure of the report."""

    name: Name
    kind: Annotated[Name, about("A file in workflow/feedrate/report/figures, without .py.")]
    title: Annotated[str, Meta(min_length=1)]
    caption: Annotated[str, about("File in report/captions, without .rst.")]
    x: Annotated[Name | None, about("The factor on the horizontal axis.")] = None


class Thresholds(Strict, kw_only=True):
    """Limits used by verdicts and statistics; changing them repeats no training."""

    input_bound_wait_share: Annotated[Share, about("Input-bound from this data-wait share.")] = 0.10
    compute_bound_wait_share: Annotated[Share, about("Compute-bound up to this data wait.")] = 0.02
    headroom: Annotated[Positive, about("Loader rate over consumption that shows headroom.")] = 1.3
    replay_gain: Annotated[Positive, about("Model-only to measured rate that shows a loss.")] = 1.1
    memory_pressed_share: Annotated[Share, about("Memory-limited from this share of it.")] = 0.95
    noise_share: Annotated[Positive, about("Noisy from this (max - min) / median.")] = 0.10
    confidence: Annotated[
        float, Meta(description="Level of the bootstrap intervals.", gt=0, lt=1)
    ] = 0.95
    claim_tolerance: Annotated[Positive, about("A claimed ratio holds within this share.")] = 0.05


class Study(Strict, kw_only=True):
    """One file in config/studies/; its name is that of the study."""

    title: Annotated[str, Meta(min_length=1)]
    question: Annotated[str, Meta(description="What the report answers.", min_length=1)]
    task: Annotated[Task, about("Training steps, or forward passes alone.")] = "training"
    source: Source
    settings: Settings
    protocol: StudyProtocol
    ladder: Annotated[
        list[Name],
        about(
            "Factors whose later levels need more memory: after an out-of-memory cell, larger ones "
            "are not tried."
        ),
    ] = []
    adapt: Annotated[
        dict[Name, dict[str, Any]],
        about("Device or kind to settings, protocol and bundles that differ there."),
    ] = {}
    factors: Annotated[dict[Name, Factor], Meta(description="What varies.", min_length=1)]
    baseline: Annotated[dict[str, Level], about("The level of each factor that ratios refer to.")]
    within: Annotated[list[Name], about("Factors of which each level has its own baseline.")] = []
    exclude: list[Exclude] = []
    published: Annotated[list[str], about("Files in config/published/.")] = []
    published_scores: Annotated[list[str], about("The same, of scores on Winoground.")] = []
    claims: list[Claim] = []
    tables: list[Table] = []
    figures: list[Figure] = []
    thresholds: Thresholds = Thresholds()


def setting_type(sets: str) -> Any:
    """The type of a setting such as `loader.workers`; None if there is no such setting."""
    part, _, key = sets.partition(".")
    return _fields(_fields(Settings).get(part)).get(key)


def all_settings() -> Iterator[str]:
    """Every setting that a factor can set, such as `loader.workers`."""
    for part, kind in _fields(Settings).items():
        yield from (f"{part}.{key}" for key in _fields(kind))


@cache
def _fields(kind: Any) -> dict[str, Any]:
    return {f.name: f.type for f in msgspec.structs.fields(kind)} if kind else {}


def adapt_keys(name: str, device: Device) -> list[str]:
    """The keys of a study's `adapt` that apply to a device; later ones override earlier ones."""
    return [key for key in (device.kind, device.variant_of, name) if key]


def adapted(value: Any, study: Study, part: str, keys: Iterable[str]) -> dict[str, Any]:
    """`value` (a study's settings or protocol, named by `part`) with what the study adapts for
    these kinds and devices; not checked."""
    result: dict[str, Any] = msgspec.to_builtins(value)
    for key in keys:
        result = merged(result, study.adapt.get(key, {}).get(part) or {})
    return result


def level_settings(study: Study, name: str, level: Level, keys: Iterable[str] = ()) -> Bundle:
    """The settings, with values, of a level of the factor `name`.

    A bundle that the study adapts for one of `keys` replaces that of the factor; not checked.
    """
    factor = study.factors[name]
    if factor.sets:
        return {factor.sets: level}
    text = level_text(level)
    bundle = factor.bundles.get(text, {})
    for key in keys:
        other = (study.adapt.get(key, {}).get("bundles") or {}).get(name, {})
        bundle = other.get(text, bundle)
    return bundle
