"""How long runs will take: as a range by earlier runs of this folder, else by published rates; and
at most, by their time limits."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from feedrate.config.plan import timeouts_min
from feedrate.config.project import Project
from feedrate.config.settings import Settings
from feedrate.config.spec import Protocol, RunSpec
from feedrate.core import paths
from feedrate.report.text import counted

KINDS = 3
"""Kinds of blocks after the window: live, loader and model."""
START_S = 120.0
"""A job's start (imports, model, first step) where no run has shown it; on Gaudi often longer."""
EARLIER, PUBLISHED = "like your earlier runs", "by published rates"


class Estimate(NamedTuple):
    """The shortest and the longest likely duration of some runs, one after another, s; the sum of
    their time limits; what the first two are from; and how many runs they leave out."""

    low_s: float = 0.0
    high_s: float = 0.0
    limit_s: float = 0.0
    bases: frozenset[str] = frozenset()
    runs: int = 0
    unknown: int = 0


class _Spec(msgspec.Struct):
    count: int
    settings: Settings
    protocol: Protocol


class _Outcome(msgspec.Struct):
    """What an estimate reads of a run that has ended."""

    status: str
    duration_s: float = 0.0


class _Earlier(NamedTuple):
    study: str
    cell: str
    samples: int
    duration_s: float


class Estimator:
    """Estimates the duration of runs."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._limits_min = timeouts_min(project)
        self._earlier: dict[str, list[_Earlier]] = {}

    def of(self, specs: Iterable[RunSpec]) -> Estimate:
        """The sum of the estimates of runs."""
        low_s = high_s = limit_s = 0.0
        bases, runs, unknown = set(), 0, 0
        for spec in specs:
            runs += 1
            limit_s += self._limits_min[spec.study][spec.device] * 60
            if times := self._by_earlier_runs(spec):
                bases.add(EARLIER)
            elif times := self._by_published_rates(spec):
                bases.add(PUBLISHED)
            else:
                unknown += 1
                continue
            low_s += times[0]
            high_s += times[1]
        return Estimate(low_s, high_s, limit_s, frozenset(bases), runs, unknown)

    def _by_earlier_runs(self, spec: RunSpec) -> tuple[float, float] | None:
        """The range of earlier runs of the same cell, else study, else device. Where these had
        fewer or more samples, it reaches from none to all of their time in proportion."""
        if spec.device not in self._earlier:
            self._earlier[spec.device] = list(_read_runs(spec.device))
        runs = self._earlier[spec.device]
        runs = [run for run in runs if run.study == spec.study] or runs
        runs = [run for run in runs if (run.study, run.cell) == (spec.study, spec.cell)] or runs
        if not runs:
            return None
        scaled = [(run.duration_s, _window_samples(spec) / run.samples) for run in runs]
        low_s = min(duration_s * min(1.0, scale) for duration_s, scale in scaled)
        return low_s, max(duration_s * max(1.0, scale) for duration_s, scale in scaled)

    def _by_published_rates(self, spec: RunSpec) -> tuple[float, float] | None:
        """The range by the published rates of these devices for the cell; where nobody published
        the cell, by all of the study."""
        entry, study = self._project.devices.get(spec.device), self._project.studies[spec.study]
        names = {spec.device, entry.variant_of if entry else None}
        published = self._project.published[spec.study]
        rows = [r for r in published if r.metric == "samples_per_s" and r.device in names]
        rows = [row for row in rows if row.count == spec.count] or rows
        of_cell = [r for r in rows if r.levels and study.baseline | r.levels == spec.levels]
        rates = [row.value / row.count * spec.count for row in of_cell or rows]
        if not rates:
            return None
        protocol = spec.protocol
        samples = _window_samples(spec) / (1 - protocol.warmup_steps / protocol.steps)
        rounds_s = KINDS * protocol.ceiling_s
        return samples / max(rates) + rounds_s, START_S + samples / min(rates) + rounds_s


def _window_samples(spec: RunSpec | _Spec) -> int:
    """Samples of the timed window, all ranks."""
    train, protocol = spec.settings.train, spec.protocol
    steps = protocol.steps - protocol.warmup_steps
    return steps * train.batch_size * train.gradient_accumulation * spec.count


def _read_runs(device: str) -> Iterable[_Earlier]:
    """The runs on a device that ended well."""
    for file in Path(paths.RUNS).glob(f"*/{device}/*/rep*/{paths.OUTCOME_NAME}"):
        try:
            outcome = msgspec.json.decode(file.read_bytes(), type=_Outcome)
            if outcome.status == "ok" and outcome.duration_s:
                spec = msgspec.json.decode(file.with_name(paths.SPEC_NAME).read_bytes(), type=_Spec)
                study, _, cell = file.parts[1:4]
                yield _Earlier(study, cell, _window_samples(spec), outcome.duration_s)
        except (OSError, msgspec.MsgspecError):
            continue  # deleted meanwhile, or of another version


def outlook(estimates: Sequence[Estimate], *, on_cluster: bool) -> str:
    """The number of runs, and how long they take: `28 runs, 10 to 30 min (like your earlier runs);
    at most 14 h by their time limits`. Devices with an estimate each train side by side on a
    cluster, else in turn."""
    runs = sum(one.runs for one in estimates)
    if not runs:
        return "There are no runs to do."
    unknown = sum(one.unknown for one in estimates)
    combine = max if on_cluster else sum
    times = ((one.low_s, one.high_s, one.limit_s) for one in estimates)
    low_s, high_s, limit_s = (combine(column) for column in zip(*times, strict=True))
    text = counted(runs, "run")
    if unknown < runs:
        part = f" for {runs - unknown} of them" if unknown else ""
        bases = ", ".join(sorted({basis for one in estimates for basis in one.bases}, reverse=True))
        text += f", {range_text(low_s, high_s)}{part} ({bases})"
    at_most = range_text(limit_s, limit_s)
    side = ", with one job at a time on each device" if on_cluster else ""
    return f"{text}; at most {at_most} by their time limits{side}."


def range_text(low_s: float, high_s: float) -> str:
    """`40 to 70 s`, `10 to 30 min`, `3 to 5 h`; one number if both are the same."""
    units = (("h", 3600.0), ("min", 60.0), ("s", 1.0))
    unit, size = next((unit, size) for unit, size in units if high_s >= 2 * size or unit == "s")
    low, high = (f"{seconds / size:.0f}" for seconds in (low_s, high_s))
    return f"{high} {unit}" if low == high else f"{low} to {high} {unit}"
