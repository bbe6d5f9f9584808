"""A plan in numbers: runs by study and device, jobs by rule and place, hours and cost."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

import msgspec

from feedrate.config.plan import Plan
from feedrate.config.project import Project
from feedrate.config.settings import Settings
from feedrate.config.spec import Protocol, RunSpec
from feedrate.config.study import Published, Study
from feedrate.config.values import Level
from feedrate.core import paths
from feedrate.flow.dry_run import DryRun, Job

# How long a run will take: as earlier ones like it did, else by published rates, else unknown.

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


HOUR_S = 3600.0
HERE = "here"
"""The host of Snakemake itself."""
DEFAULT_PARTITION = "default partition"
_FAMILY = re.compile(r"^(tabulate|plot)_\w+$")


@dataclass
class Runs:
    """The runs of a study on a device."""

    study: str
    device: str
    devices_per_job: int
    price_usd_per_hour: float | None
    """Of all devices of a job."""
    cells: int = 0
    unsupported_cells: int = 0
    runs: int = 0
    done: int = 0
    to_do: int = 0
    job_s: float = 0.0
    """Of the runs to do that something tells the time of, one after another."""
    bases: Counter[Basis | None] = field(default_factory=Counter)
    """What the estimates rest on, counted; None: nothing tells the time of these runs."""

    @property
    def unknown(self) -> int:
        """Runs to do that nothing tells the time of."""
        return self.bases[None]

    @property
    def device_hours(self) -> float:
        """Hours of all devices of the jobs."""
        return self.job_s / HOUR_S * self.devices_per_job

    @property
    def cost_usd(self) -> float | None:
        """What the jobs cost; None where no price is known."""
        price = self.price_usd_per_hour
        return None if price is None else price * self.job_s / HOUR_S


@dataclass(frozen=True)
class Jobs:
    """Jobs of a rule that ask for the same in the same place."""

    rule: str
    place: str
    count: int
    threads: int
    resources: tuple[tuple[str, int | str], ...]


@dataclass(frozen=True)
class Forecast:
    """What would run."""

    runs: list[Runs]
    jobs: list[Jobs]
    on_cluster: bool
    unplaced: list[Jobs]
    """Training jobs for which the profile says no place."""

    @property
    def wall_s(self) -> float:
        """Training jobs one after another; on a cluster each device on a node of its own."""
        nodes: dict[str, float] = {}
        for group in self.runs:
            node = group.device if self.on_cluster else HERE
            nodes[node] = nodes.get(node, 0.0) + group.job_s
        return max(nodes.values(), default=0.0)


def forecast(project: Project, plan: Plan, dry_run: DryRun) -> Forecast:
    """The forecast of a dry-run of this project, with its results in the working directory."""
    jobs = _jobs(dry_run)
    placed = dry_run.configuration.set_resources
    return Forecast(
        runs=_runs(project, plan, dry_run.jobs),
        jobs=jobs,
        on_cluster=dry_run.on_cluster,
        unplaced=[
            row
            for row in jobs
            if dry_run.on_cluster
            and row.rule.startswith(paths.TRAIN_RULE)
            and row.rule not in placed
        ],
    )


def _runs(project: Project, plan: Plan, jobs: Iterable[Job]) -> list[Runs]:
    groups: dict[tuple[str, str], Runs] = {}
    for study in project.studies:
        for device in project.config.devices:
            entry = project.devices[device]
            groups[study, device] = Runs(study, device, entry.count, entry.price_usd_per_hour)
    for lacking in plan.unsupported:
        groups[lacking.study, lacking.device].unsupported_cells += 1
    planned = {job.output[0] for job in jobs if job.rule.startswith(paths.TRAIN_RULE)}
    estimator = Estimator(project)
    for spec in plan.runs.values():
        group = groups[spec.study, spec.device]
        group.cells += spec.repeat == 1
        group.runs += 1
        outcome = paths.OUTCOME.format(
            study=spec.study, device=spec.device, cell=spec.cell, repeat=spec.repeat
        )
        if outcome in planned:
            _add(group, estimator, spec)
        else:
            group.done += Path(outcome).exists()
    return list(groups.values())


def _add(group: Runs, estimator: Estimator, spec: RunSpec) -> None:
    """Count a run that is to be made."""
    group.to_do += 1
    estimate = estimator.of(spec)
    group.bases[estimate.basis if estimate else None] += 1
    group.job_s += estimate.seconds if estimate else 0.0


def _jobs(dry_run: DryRun) -> list[Jobs]:
    """Jobs alike, counted, in the order of the Snakefile; all tables in one row, and all figures.

    Snakemake tells of jobs in an order that changes from call to call."""
    order = {rule: number for number, rule in enumerate(dry_run.configuration.rules)}
    counts = Counter(
        (_FAMILY.sub(r"\1_*", job.rule), _place(dry_run, job), job.threads, _asked(dry_run, job))
        for job in sorted(dry_run.jobs, key=lambda job: order[job.rule])
    )
    return [
        Jobs(rule, place, count, threads, resources)
        for (rule, place, threads, resources), count in counts.items()
    ]


def _place(dry_run: DryRun, job: Job) -> str:
    if dry_run.runs_here(job):
        return HERE
    return str(job.resources.get("slurm_partition") or DEFAULT_PARTITION)


def _asked(dry_run: DryRun, job: Job) -> tuple[tuple[str, int | str], ...]:
    """What a job asks a scheduler for, beside its place; nothing where none is asked."""
    if dry_run.runs_here(job):
        return ()
    return tuple((k, v) for k, v in sorted(job.resources.items()) if k != "slurm_partition")
