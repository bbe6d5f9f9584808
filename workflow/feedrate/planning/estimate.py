"""How long a run will take: as earlier ones like it did, else by published rates, else unknown."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

import msgspec

from feedrate import paths
from feedrate.config.base import Level
from feedrate.config.plan import Project
from feedrate.config.published import Published
from feedrate.config.settings import Protocol, RunSpec, Settings
from feedrate.config.study import Study

START_S = 120.0
"""A job's start (imports, the model, the first step) where no run on the device has shown it. On
Gaudi, compiling graphs can take longer."""

Basis = Literal["cell", "study", "published", "lowest", "scaled"]
"""What an estimate rests on, the best first: earlier runs of the cell, earlier runs of other cells
of the study on the device, a published rate of the cell, the lowest published rate of the device,
published rates of another number of these devices."""


class Estimate(NamedTuple):
    """Seconds of a job from start to end, and what they rest on."""

    seconds: float
    basis: Basis


class _Spec(msgspec.Struct, frozen=True):
    cell: str
    count: int
    settings: Settings
    protocol: Protocol


class _Measurement(msgspec.Struct, frozen=True):
    wall_s: float


class _Provenance(msgspec.Struct, frozen=True):
    duration_s: float | None = None


class _Record(msgspec.Struct, frozen=True):
    """The part of a record that tells how long such a run takes."""

    status: str
    spec: _Spec | None = None
    measurement: _Measurement | None = None
    provenance: _Provenance = _Provenance()


class _Past(NamedTuple):
    """An earlier run: its window, and all else of the job, s."""

    cell: str
    samples: int
    window_s: float
    rest_s: float


class Estimator:
    """Estimates for the runs of a project, from the records in the working directory."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._past: dict[tuple[str, str], list[_Past]] = {}

    def of(self, spec: RunSpec) -> Estimate | None:
        """How long a run will take; None where nothing tells.

        Earlier runs of the same cell tell, else all of the same study and device: the window is
        scaled to this run's samples, the rest of the job taken as it was. To published rates, a
        job's start and its two ceilings are added.
        """
        key = spec.study, spec.device
        if key not in self._past:
            self._past[key] = list(_read_past(*key))
        past = self._past[key]
        alike = [run for run in past if run.cell == spec.cell]
        samples = _window_samples(spec)
        if past:
            times_s = [run.rest_s + run.window_s * samples / run.samples for run in alike or past]
            return Estimate(median(times_s), "cell" if alike else "study")
        published = self._published_rate(spec)
        if published is None:
            return None
        rate, basis = published
        protocol = spec.protocol
        training_s = samples * protocol.steps / (protocol.steps - protocol.warmup_steps) / rate
        return Estimate(START_S + training_s + 2 * protocol.ceiling_s, basis)

    def _published_rate(self, spec: RunSpec) -> tuple[float, Basis] | None:
        """Samples/s that somebody printed for a cell, the study's headline edition first; for a
        cell that nobody printed, the lowest of the device, so that time is not estimated short.

        Rates of another number of the same devices count where there are no others, as if each
        device brought the same.
        """
        entry = self._project.devices.get(spec.device)
        names = {spec.device, entry.variant_of if entry else None}
        rows = [
            row
            for row in self._project.published[spec.study]
            if row.device in names and row.metric == "samples_per_s"
        ]
        if not rows:
            return None
        counted = [row for row in rows if row.count == spec.count]
        rows = counted or rows
        study = self._project.studies[spec.study]
        cell = [row for row in rows if _is_cell(row, study, spec.levels)]
        best = [row for row in cell if row.headline] or cell or rows
        basis: Basis = "scaled" if not counted else "published" if cell else "lowest"
        return min(row.value / row.count for row in best) * spec.count, basis


def _is_cell(row: Published, study: Study, levels: dict[str, Level]) -> bool:
    """Whether a published number is of the cell with these levels: those that it leaves out are the
    baseline's; one that names no level at all is of no cell."""
    named = study.baseline | row.levels
    return bool(row.levels) and {factor: named[factor] for factor in study.factors} == levels


def _window_samples(spec: RunSpec | _Spec) -> int:
    """Samples of the timed window, all ranks."""
    train, protocol = spec.settings.train, spec.protocol
    steps = protocol.steps - protocol.warmup_steps
    return steps * train.batch_size * train.gradient_accumulation * spec.count


def _read_past(study: str, device: str) -> Iterator[_Past]:
    """The runs of a study on a device that ended well, whatever their cells."""
    decoder = msgspec.json.Decoder(_Record)
    for file in Path().glob(paths.RECORD.format(study=study, device=device, cell="*", repeat="*")):
        try:
            record = decoder.decode(file.read_bytes())
        except (OSError, msgspec.DecodeError):
            continue  # of another version, or being replaced
        duration_s = record.provenance.duration_s
        if record.status != "ok" or None in (record.spec, record.measurement, duration_s):
            continue
        assert record.spec is not None
        assert record.measurement is not None
        assert duration_s is not None
        window_s = record.measurement.wall_s
        samples = _window_samples(record.spec)
        if samples > 0:
            yield _Past(record.spec.cell, samples, window_s, max(duration_s - window_s, 0.0))
