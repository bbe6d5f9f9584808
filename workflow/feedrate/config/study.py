"""A study as data: what it varies, asks and claims, and the numbers that its source published."""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from feedrate.config.devices import Capability, Device
from feedrate.config.settings import Settings, Task
from feedrate.config.spec import StudyProtocol
from feedrate.config.values import (
    Count,
    Level,
    Name,
    Natural,
    Positive,
    Share,
    Strict,
    Text,
    about,
    level_text,
    merged,
)

Percent = Annotated[float, Meta(ge=0, le=100)]

Bundle = dict[str, Level | list[str]]  # settings, such as `loader.workers`, with their values


class SourceProtocol(Strict, kw_only=True):
    """The source's window: the steps that it leaves out, and the epochs that it times."""

    warmup_steps: Natural = 0
    epochs: Annotated[Count | None, about("Epochs that it trains; null: all of a run.")] = None


class Source(Strict, kw_only=True):
    """The source of a study's published numbers and claims."""

    title: Text
    address: str = ""
    editions: Annotated[list[str], about("Editions of the source, oldest first.")] = []
    protocol: Annotated[SourceProtocol, about("How it measured.")] = SourceProtocol()
    sheet: Annotated[str, about("Entry of sheets.yaml, for statements in words.")] = ""


class Factor(Strict, kw_only=True):
    """A setting, or a bundle of settings, that a study varies."""

    sets: Annotated[str, about("The setting that it sets, such as `loader.workers`.")] = ""
    bundles: Annotated[dict[str, Bundle], about("Instead of `sets`: level to its settings.")] = {}
    levels: Annotated[list[Level], Meta(min_length=1)]
    label: Annotated[str, about("Name on axes and in tables.")] = ""
    requires: Annotated[
        dict[str, Capability], about("By level: the capability that it requires.")
    ] = {}

    @property
    def texts(self) -> list[str]:
        """Its levels as YAML writes them."""
        return list(map(level_text, self.levels))


class Exclude(Strict, kw_only=True):
    """Cells to leave out: those with all of these levels."""

    levels: Annotated[dict[str, Level], Meta(min_length=1)]
    unless: Annotated[dict[str, list[Level]], about("By factor: levels whose cells stay.")] = {}
    unless_able: Annotated[Capability | None, about("Devices with this capability run them.")] = (
        None
    )
    why: Text

    def covers(self, levels: Mapping[str, Level], able: Collection[str]) -> bool:
        """Whether a cell with these levels is left out on a device that is `able` to do these."""
        if self.unless_able in able:
            return False
        if any(levels.get(factor) in values for factor, values in self.unless.items()):
            return False
        return self.levels.items() <= levels.items()


CLAIMED = ("published", "more_than", "no_less_than", "fits")
"""The keys that say what is claimed; a claim has one of them."""


class Claim(Strict, kw_only=True):
    """A statement of the source, or a question of ours, as an expression over cells."""

    id: Name
    of: Annotated[Literal["source", "advice", "ours"], about("Who says it.")] = "source"
    text: Annotated[Text, about("The statement, in our words.")]
    expression: Annotated[
        Text, about("`gaudi2[workers=2] / h100[workers=2]`; `*`: each device that was measured.")
    ]
    published: Annotated[Positive | None, about("The value that the source prints.")] = None
    tolerance: Annotated[
        Share | None, about("For `published`, in place of claim_tolerance: 'about'.")
    ] = None
    more_than: Annotated[float | None, about("The ratio is above this.")] = None
    no_less_than: Annotated[float | None, about("It is not below this by smallest_effect.")] = None
    fits: Annotated[bool | None, about("No ratio, but whether a cell fits in memory.")] = None
    edition: str = ""
    metric: Literal[
        "samples_per_s", "tflops_per_device", "loss_last", "loss_end", "forward_memory_gib",
        "batch_size", "model_size_gib", "peak_memory_gib", "host_peak_memory_gib",
    ] = "samples_per_s"  # fmt: skip
    """The column of the results whose ratio it is."""

    def margin(self, thresholds: "Thresholds") -> float:
        """The share by which the ratio may miss `published`, or be below `no_less_than`."""
        if self.published is None:
            return thresholds.smallest_effect if self.more_than is None else 0.0
        return thresholds.claim_tolerance if self.tolerance is None else self.tolerance

    def bounds(self, thresholds: "Thresholds") -> tuple[float, float]:
        """The least and the largest ratio with which the claim holds."""
        share = self.margin(thresholds)
        if self.published is not None:
            return self.published * (1 - share), self.published * (1 + share)
        least = (self.no_less_than or 0.0) if self.more_than is None else self.more_than
        return math.nextafter(least * (1 - share), math.inf), math.inf


class Thresholds(Strict, kw_only=True):
    """Lines of limits and statistics; a change of them repeats no training."""

    long_wait_share: Annotated[Share, about("A wait of this share of the time is long.")] = 0.10
    headroom: Annotated[Positive, about("A part over training: room to spare.")] = 1.3
    limit_ratio: Annotated[Positive, about("Gain from which a limit is named.")] = 1.1
    full_memory_share: Annotated[Share, about("Memory is full from this share of it.")] = 0.95
    noise_share: Annotated[Positive, about("Noisy if two runs may differ by more.")] = 0.10
    smallest_effect: Annotated[Share, about("A smaller gain does not justify a change.")] = 0.03
    confidence: Annotated[float, Meta(description="Level of all intervals.", gt=0, lt=1)] = 0.95
    claim_tolerance: Annotated[Positive, about("A claimed ratio holds within this share.")] = 0.05


class Adaptation(Strict, kw_only=True):
    """What differs in a study on some devices."""

    settings: dict[str, Any] = {}
    protocol: dict[str, Any] = {}
    bundles: Annotated[
        dict[str, dict[str, Bundle]], about("By factor and level: the settings of the level.")
    ] = {}


class Study(Strict, kw_only=True):
    """One file in config/studies/; its name is that of the study."""

    title: Text
    question: Annotated[Text, about("What the report answers.")]
    asks: Annotated[
        Literal["speed", "largest", "latency", "learning"] | None,
        about("What its first screen shows; null: latency for inference, else speed."),
    ] = None
    claim: Annotated[str, about("The id of the claim that its first screen judges.")] = ""
    epoch_samples: Annotated[Count | None, about("To show the time of an epoch.")] = None
    task: Annotated[Task, about("Training steps, or forward passes only.")] = "training"
    source: Source
    settings: Settings
    protocol: StudyProtocol
    ladder: Annotated[
        list[Name], about("Factors: levels above one that ran out of memory are skipped.")
    ] = []
    adapt: Annotated[
        dict[Name, Adaptation], about("By device, kind or memory (below-40-gib): what differs.")
    ] = {}
    factors: Annotated[dict[Name, Factor], Meta(description="What varies.", min_length=1)]
    baseline: Annotated[dict[str, Level], about("The level of each factor that ratios refer to.")]
    within: Annotated[list[Name], about("Factors whose levels have their own baseline.")] = []
    exclude: list[Exclude] = []
    published: Annotated[list[str], about("Files in config/published/.")] = []
    published_scores: Annotated[list[str], about("Files of scores on Winoground.")] = []
    published_accuracies: Annotated[list[str], about("Files of accuracies elsewhere.")] = []
    claims: list[Claim] = []
    thresholds: Thresholds = Thresholds()

    def baseline_of(self, cell: Mapping[str, Any]) -> dict[str, Level]:
        """The levels of the cell that a cell with these levels is compared with."""
        return {n: (cell if n in self.within else self.baseline)[n] for n in self.factors}


SETTINGS: dict[str, Any] = {
    f"{part.name}.{field.name}": field.type
    for part in msgspec.structs.fields(Settings)
    for field in msgspec.structs.fields(part.type)
}
"""The types of all settings that a factor can set, such as `loader.workers`."""
BELOW_MEMORY = re.compile(r"below-([1-9]\d*)-gib")
"""A key of `adapt` for devices with less memory than that."""


def adapt_keys(study: Study, name: str, device: Device) -> list[str]:
    """The keys of a study's `adapt` that apply to a device, the strongest last."""
    limits = [int(match[1]) for key in study.adapt if (match := BELOW_MEMORY.fullmatch(key))]
    below = [n for n in sorted(limits, reverse=True) if (device.memory_gib or n) < n]
    keys = [device.kind, *(f"below-{n}-gib" for n in below), device.variant_of, name]
    return list(filter(None, keys))


def adapted(study: Study, part: str, keys: Iterable[str]) -> dict[str, Any]:
    """A study's `settings` or `protocol` (`part`) as adapted for these keys; not checked."""
    result: dict[str, Any] = msgspec.to_builtins(getattr(study, part))
    for key in keys:
        if key in study.adapt:
            result = merged(result, getattr(study.adapt[key], part))
    return result


def level_settings(study: Study, name: str, level: Level, keys: Iterable[str] = ()) -> Bundle:
    """The settings of a level of the factor `name`, adapted for `keys`; not checked."""
    factor = study.factors[name]
    if factor.sets:
        return {factor.sets: level}
    text = level_text(level)
    bundle = factor.bundles.get(text, {})
    for key in keys:
        if key in study.adapt:
            bundle = study.adapt[key].bundles.get(name, {}).get(text, bundle)
    return bundle


class Published(Strict, kw_only=True):
    """One row of a study's `published` files: a number from its source."""

    id: Annotated[Name, about("Name that is unique in the file.")]
    device: Annotated[Name, about("Device of the registry.")]
    count: Annotated[Count, about("Devices in the job.")]
    levels: Annotated[dict[str, Level], about("Levels as factor=value, separated by ;.")]
    metric: Annotated[Name, about("samples_per_s, peak_memory_gib, …")]
    value: Positive
    unit: str
    batch_size: Annotated[Count | None, about("Per device, where the source states it.")] = None
    timed_samples: Annotated[Count | None, about("Samples in a rate's window, if known.")] = None
    flops_per_sample: Annotated[Positive | None, about("Forward and backward.")] = None
    counted: Annotated[
        Positive | None, about("For a number of parameters: those of the model as built here.")
    ] = None
    edition: Annotated[str, about("Edition of the source, as YYYY-MM.")]
    software: str = ""
    source: Annotated[Text, about("Title or address of the source.")]
    protocol: Annotated[str, about("How it was measured, and what the source omits.")] = ""
    sheet: Annotated[str, about("Entry of sheets.yaml: what the source says about the run.")] = ""
    headline: Annotated[bool, about("Whether claims and comparison tables use this row.")] = False


Item = Literal[
    "device", "devices", "model", "data", "rows", "steps_per_epoch", "checkpoint", "precision",
    "tf32", "parallelism", "batch_size", "warmup_steps", "window", "software",
]  # fmt: skip
"""The statements of a sheet, under the names that our results have. `devices` is their number in
the job; `tf32`: whether single precision is computed as TF32; `window`: what the rate was timed
over."""


class Fact(Strict, kw_only=True):
    """One item of a sheet."""

    says: Annotated[Level | list[Level], about("In the words of our results; a list: any of them.")]
    where: Annotated[Text, about("Where it says so, or how it follows.")]
    contradicted: Annotated[bool, about("The source contradicts itself; `where` says how.")] = False

    @property
    def values(self) -> tuple[Level, ...]:
        """All that it may be."""
        return tuple(self.says) if isinstance(self.says, list) else (self.says,)


class Sheet(Strict, kw_only=True):
    """A source's statements about an experiment; it does not state what is missing here."""

    source: Annotated[Text, about("Title of the source.")]
    like: Annotated[str, about("An entry above, whose facts hold here too.")] = ""
    facts: dict[Item, Fact] = {}


class BenchmarkResult(Strict, kw_only=True):
    """A model's published result on a benchmark."""

    id: Annotated[Name, about("Name that is unique in the file.")]
    model: Annotated[Text, about("Its name in the source.")]
    edition: Annotated[str, about("Edition of the source, as YYYY-MM.")]
    source: Annotated[Text, about("Title or address of the source.")]
    note: str = ""


class BenchmarkScore(BenchmarkResult, kw_only=True):
    """One row of a study's `published_scores` files: a model's three scores on Winoground."""

    head: Annotated[str, about("What scores a pair: matching, contrastive; empty: unknown.")] = ""
    text_score: Percent
    image_score: Percent
    group_score: Percent


class BenchmarkAccuracy(BenchmarkResult, kw_only=True):
    """One row of a study's `published_accuracies` files: a model's accuracy on a benchmark."""

    benchmark: Annotated[Text, about("Benchmark and split.")]
    accuracy: Percent
