"""A plan in numbers: runs by study and device, jobs by rule and place, hours and cost."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from feedrate import paths
from feedrate.config.plan import Plan, Project
from feedrate.config.settings import RunSpec
from feedrate.planning.dry_run import DryRun, Job
from feedrate.planning.estimate import Basis, Estimator

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
