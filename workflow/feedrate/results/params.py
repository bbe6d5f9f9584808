"""The parts of the configuration that the steps after the runs need.

Each rule gets one of them as a plain dict, so that it runs again when, and only when, something it
uses has changed. The Snakefile imports this module at every parse, so it imports nothing heavy.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from feedrate.config.devices import Peak
from feedrate.config.plan import Plan, Shared, Unsupported
from feedrate.config.project import Project
from feedrate.config.sheets import Sources
from feedrate.config.study import Claim, Exclude, Factor, Thresholds
from feedrate.config.values import Count, Level, Name, Positive, Share, Strict, level_text, subset
from feedrate.config.workflow import Hub

WORKERS = "loader.workers"
"""The setting that a recommendation is about."""

DECODE = "loader.decode"
"""The setting that chooses where and how images are decoded."""

TRAINED = ("model.name", "model.size", "model.image_px", "model.losses")
"""The settings that say what is trained. Speeds of cells that differ in one are not compared."""

TOKENS = "loader.max_tokens"
"""The setting of the loader that changes what a device computes."""


def trains_the_same(
    factors: Mapping[str, Factor], one: Mapping[str, Any], other: Mapping[str, Any]
) -> bool:
    """Whether cells with these levels train the same: their settings in TRAINED are equal."""
    return _differing(factors, one, other).isdisjoint(TRAINED)


def computes_the_same(
    factors: Mapping[str, Factor], one: Mapping[str, Any], other: Mapping[str, Any]
) -> bool:
    """Whether a device computes the same in cells with these levels, however they load."""
    differing = _differing(factors, one, other)
    return TOKENS not in differing and all(name.startswith("loader.") for name in differing)


def _differing(
    factors: Mapping[str, Factor], one: Mapping[str, Any], other: Mapping[str, Any]
) -> set[str]:
    """The settings in which cells with these levels differ."""
    ours, theirs = (_every_setting(factors, levels) for levels in (one, other))
    return {name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)}


def _every_setting(factors: Mapping[str, Factor], levels: Mapping[str, Any]) -> dict[str, Any]:
    """All settings that a cell's levels set, without those adapted for a device."""
    found: dict[str, Any] = {}
    for name, factor in factors.items():
        level = levels[name]
        found |= {factor.sets: level} if factor.sets else factor.bundles.get(level_text(level), {})
    return found


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a device's registry entry that the checks need; other keys are ignored."""

    model_pattern: str | None = None
    peaks: list[Peak] = []
    power_w: Positive | None = None


class StudyFacts(Strict, kw_only=True):
    """The shape of a study."""

    factors: dict[Name, Factor]
    baseline: dict[str, Level]

    @property
    def workers_factor(self) -> str | None:
        """The factor that sets the loader's workers, if the study has one."""
        return next((n for n, f in self.factors.items() if f.sets == WORKERS), None)


class CollectStudy(StudyFacts, kw_only=True):
    """A study, for collecting."""

    thresholds: Thresholds
    within: list[Name] = []

    def baseline_of(self, cell: Mapping[str, Any]) -> dict[str, Level]:
        """The baseline that a cell is compared with, in the order of the factors."""
        return {n: (cell if n in self.within else self.baseline)[n] for n in self.factors}


class CollectSettings(Strict, kw_only=True):
    """`--settings` of collect-results."""

    studies: dict[Name, CollectStudy]
    memory_gib: dict[Name, Positive | None]
    price_usd_per_hour: dict[Name, Positive | None] = {}
    """Of all devices of a job, where one is known."""
    unsupported: list[Unsupported]
    shared: list[Shared] = []
    sites: dict[Name, str] = {}
    """In a report of several sites, by device: its site."""
    devices: dict[Name, DeviceFacts] = {}
    """To make a damaged record again."""


class PublishedFacts(Strict, kw_only=True):
    """A published number, as far as claims use it."""

    device: Name
    count: Count
    levels: dict[str, Level]
    metric: Name
    value: Positive
    edition: str
    headline: bool
    batch_size: Count | None = None
    software: str = ""
    sheet: str = ""


class ClaimStudy(StudyFacts, kw_only=True):
    """A study with its published numbers, for its claims."""

    published: list[PublishedFacts]
    source: str
    claims: list[Claim]
    within: list[Name] = []
    exclude: list[Exclude] = []
    measured: list[Name]
    able: dict[Name, list[Name]] = {}
    """The capabilities of the measured devices."""
    confidence: float
    tolerance: Positive
    smallest_effect: Share
    sources: Sources = Sources()

    def levels_of(self, row: PublishedFacts) -> dict[str, Level]:
        """All levels of a published number's cell: the baseline's where it names none."""
        levels = self.baseline | row.levels
        return {factor: levels[factor] for factor in self.factors}


class ClaimSettings(Strict, kw_only=True):
    """`--settings` of judge-claims."""

    studies: dict[Name, ClaimStudy]


def collect_settings(project: Project, plan: Plan) -> CollectSettings:
    """`--settings` of collect-results."""
    devices = {name: project.devices[name] for name in project.config.devices}
    return CollectSettings(
        studies={name: subset(CollectStudy, study) for name, study in project.studies.items()},
        memory_gib={name: device.memory_gib for name, device in devices.items()},
        price_usd_per_hour={n: device.price_usd_per_hour for n, device in devices.items()},
        unsupported=plan.unsupported,
        shared=plan.shared,
        sites=project.sites,
        devices={name: subset(DeviceFacts, device) for name, device in devices.items()},
    )


def claim_settings(project: Project) -> ClaimSettings:
    """`--settings` of judge-claims."""
    studies = {
        name: subset(
            ClaimStudy,
            study,
            published=[subset(PublishedFacts, row) for row in project.published[name]],
            source=study.source.title,
            measured=project.devices_of(name),
            able={device: project.devices[device].able for device in project.devices_of(name)},
            confidence=study.thresholds.confidence,
            tolerance=study.thresholds.claim_tolerance,
            smallest_effect=study.thresholds.smallest_effect,
            sources=sources_of(project, name),
        )
        for name, study in project.studies.items()
    }
    return ClaimSettings(studies=studies)


def sources_of(project: Project, study: str) -> Sources:
    """The statements of a study's sources about their experiments."""
    default = project.studies[study].source.sheet
    named = {default, *(row.sheet for row in project.published[study])}
    return Sources(
        sheets={name: sheet for name, sheet in project.sheets.items() if name in named},
        default=default,
        datasets={n: d.name for n, d in project.config.datasets.items() if isinstance(d, Hub)},
    )
