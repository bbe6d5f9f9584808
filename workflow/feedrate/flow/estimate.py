"""How long runs will take, from earlier runs and published rates."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

import msgspec

from feedrate.config.project import Project
from feedrate.config.settings import Settings
from feedrate.config.spec import Protocol, RunSpec
from feedrate.config.study import Published, Study
from feedrate.config.values import Level
from feedrate.core import paths

KINDS = 3
"""Kinds of blocks after the window: live, loader and model."""
START_S = 120.0
"""A job's start (imports, model, first step) where no run has shown it; on Gaudi often longer."""

Basis = Literal["cell", "study", "published", "lowest", "scaled"]
"""The bases of an estimate, the best first: earlier runs of the cell, earlier runs of other cells
of the study on the device, a published rate of the cell, the lowest published rate of the device,
published rates of another number of these devices."""


class _Spec(msgspec.Struct, frozen=True):
    """The part of a spec that the duration depends on."""

    cell: str
    count: int
    settings: Settings
    protocol: Protocol


class _Past(NamedTuple):
    """An earlier run: its window, and all else of the job, s."""

    cell: str
    samples: int
    window_s: float
    rest_s: float


class Estimator:
    """Estimates the duration of runs from the records in the working directory."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._past: dict[tuple[str, str], list[_Past]] = {}

    def of(self, spec: RunSpec) -> tuple[float, Basis] | None:
        """The duration of a run's job, s, and its basis; None if there is none.

        Earlier runs of the same cell count, else all of the same study and device: the window is
        scaled to this run's samples, the rest of the job taken as it was. To published rates, a
        job's start and the blocks after its window are added.
        """
        key = spec.study, spec.device
        if key not in self._past:
            self._past[key] = list(_read_past(*key))
        past = self._past[key]
        alike = [run for run in past if run.cell == spec.cell]
        samples = _window_samples(spec)
        if past:
            times_s = [run.rest_s + run.window_s * samples / run.samples for run in alike or past]
            return median(times_s), "cell" if alike else "study"
        if (published := self._published_rate(spec)) is None:
            return None
        rate, basis = published
        protocol = spec.protocol
        training_s = samples * protocol.steps / (protocol.steps - protocol.warmup_steps) / rate
        return START_S + training_s + KINDS * protocol.ceiling_s, basis

    def _published_rate(self, spec: RunSpec) -> tuple[float, Basis] | None:
        """Published samples/s of a cell, the headline edition's first; else the device's lowest, so
        that the time is not estimated too short. Rates of another number of the same devices count
        if there are no others, in proportion to the number."""
        entry, study = self._project.devices.get(spec.device), self._project.studies[spec.study]
        names = {spec.device, entry.variant_of if entry else None}
        rates = [r for r in self._project.published[spec.study] if r.metric == "samples_per_s"]
        rows = [row for row in rates if row.device in names]
        if not rows:
            return None
        counted = [row for row in rows if row.count == spec.count]
        rows = counted or rows
        cell = [row for row in rows if _is_cell(row, study, spec.levels)]
        best = [row for row in cell if row.headline] or cell or rows
        basis: Basis = "scaled" if not counted else "published" if cell else "lowest"
        return min(row.value / row.count for row in best) * spec.count, basis


def _is_cell(row: Published, study: Study, levels: dict[str, Level]) -> bool:
    """Whether a published number belongs to the cell with these levels. Factors that it does not
    name have the baseline's level; a number that names no factor belongs to no cell."""
    named = study.baseline | row.levels
    return bool(row.levels) and {factor: named[factor] for factor in study.factors} == levels


def _window_samples(spec: RunSpec | _Spec) -> int:
    """Samples of the timed window, all ranks."""
    train, protocol = spec.settings.train, spec.protocol
    steps = protocol.steps - protocol.warmup_steps
    return steps * train.batch_size * train.gradient_accumulation * spec.count


class _Measurement(msgspec.Struct):
    wall_s: float


class _Provenance(msgspec.Struct):
    duration_s: float


class _Record(msgspec.Struct):
    """What an estimate reads of a record."""

    status: str
    spec: _Spec | None = None
    measurement: _Measurement | None = None
    provenance: _Provenance | None = None


def _read_past(study: str, device: str) -> Iterator[_Past]:
    """The runs of a study on a device with status `ok`, as the last report has them."""
    try:
        lines = Path(paths.RECORDS.format(study=study, device=device)).read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        try:
            record = msgspec.json.decode(line, type=_Record)
        except msgspec.MsgspecError:
            continue  # of another version, or without a measurement
        if record.status == "ok" and record.spec and record.measurement and record.provenance:
            window_s = record.measurement.wall_s
            rest_s = max(record.provenance.duration_s - window_s, 0.0)
            if samples := _window_samples(record.spec):
                yield _Past(record.spec.cell, samples, window_s, rest_s)
