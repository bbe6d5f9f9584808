"""How long runs will take: by earlier runs of this machine, else by published rates."""

from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

from feedrate.config.project import Project
from feedrate.config.settings import Settings
from feedrate.config.spec import Protocol, RunSpec
from feedrate.core import paths

KINDS = 3
"""Kinds of blocks after the window: live, loader and model."""
START_S = 120.0
"""A job's start (imports, model, first step) where no run has shown it; on Gaudi often longer."""
EARLIER, PUBLISHED = "earlier runs", "published rates"


class Estimate(NamedTuple):
    """The duration of a run's job, s, and what it is estimated from."""

    duration_s: float
    basis: str


class _Spec(msgspec.Struct):
    cell: str
    count: int
    settings: Settings
    protocol: Protocol


class _Measurement(msgspec.Struct):
    wall_s: float


class _Provenance(msgspec.Struct):
    duration_s: float


class _Record(msgspec.Struct):
    """What an estimate reads of the record of a run that ended well."""

    status: str
    spec: _Spec
    measurement: _Measurement
    provenance: _Provenance


class Estimator:
    """Estimates the duration of runs."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._records: dict[tuple[str, str], list[_Record]] = {}

    def of(self, spec: RunSpec) -> Estimate | None:
        """The estimate for a run; None if nothing is known. Earlier runs of the same cell count,
        else all of the same study and device: the window is scaled to this run's samples, the rest
        of the job is taken as it was."""
        key = spec.study, spec.device
        if key not in self._records:
            self._records[key] = _read_records(*key)
        records = self._records[key]
        of_cell = [record for record in records if record.spec.cell == spec.cell]
        times_s = []
        for record in of_cell or records:
            window_s = record.measurement.wall_s
            scale = _window_samples(spec) / _window_samples(record.spec)
            times_s.append(record.provenance.duration_s - window_s + scale * window_s)
        if times_s:
            return Estimate(median(times_s), EARLIER)
        rate = self._published_rate(spec)
        if rate is None:
            return None
        protocol = spec.protocol
        window_share = 1 - protocol.warmup_steps / protocol.steps
        training_s = _window_samples(spec) / window_share / rate
        return Estimate(START_S + training_s + KINDS * protocol.ceiling_s, PUBLISHED)

    def _published_rate(self, spec: RunSpec) -> float | None:
        """Samples/s of the cell on this many devices, by the published numbers of these devices;
        where nobody published the cell, their lowest, so that the time is not too short."""
        entry, study = self._project.devices.get(spec.device), self._project.studies[spec.study]
        names = {spec.device, entry.variant_of if entry else None}
        published = self._project.published[spec.study]
        rows = [r for r in published if r.metric == "samples_per_s" and r.device in names]
        rows = [row for row in rows if row.count == spec.count] or rows
        rates, of_cell = [], []
        for row in rows:
            rate = row.value / row.count * spec.count
            rates.append(rate)
            levels = study.baseline | row.levels
            if row.levels and {name: levels[name] for name in study.factors} == spec.levels:
                of_cell.append(rate)
        return min(of_cell or rates, default=None)


def _window_samples(spec: RunSpec | _Spec) -> int:
    """Samples of the timed window, all ranks."""
    train, protocol = spec.settings.train, spec.protocol
    steps = protocol.steps - protocol.warmup_steps
    return steps * train.batch_size * train.gradient_accumulation * spec.count


def _read_records(study: str, device: str) -> list[_Record]:
    """The runs of a study on a device that ended well, as the last report has them."""
    records = []
    file = Path(paths.RECORDS.format(study=study, device=device))
    for line in file.read_bytes().splitlines() if file.is_file() else ():
        try:
            record = msgspec.json.decode(line, type=_Record)
        except msgspec.MsgspecError:
            continue  # it did not end well, or is of another version
        if record.status == "ok":
            records.append(record)
    return records
