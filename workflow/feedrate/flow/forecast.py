"""A plan in numbers: runs by study and device, jobs by rule and place, hours and cost.

They come from a dry-run, which writes itself as data into the folder that an environment variable
names: the Snakefile writes its configuration, the logger `feedrate` every job.
"""

import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import msgspec

from feedrate.config.plan import Plan
from feedrate.config.project import Project
from feedrate.core import paths, variables
from feedrate.flow.attempts import of_run
from feedrate.flow.runs import Basis, Estimator

CONFIGURATION = "configuration.json"
JOBS = "jobs.jsonl"
INTERNAL = ("_cores", "_nodes", "tmpdir", "tries")
"""Resources that are no request of a job."""


class Job(msgspec.Struct, frozen=True):
    """A job that would run."""

    rule: str
    output: list[str]
    threads: int
    resources: dict[str, int | str]


class DryRun(msgspec.Struct, frozen=True):
    """All that a dry-run wrote: how its Snakemake was called, and the jobs."""

    config: dict[str, Any]
    on_cluster: bool
    """Whether jobs are sent to a cluster."""
    rules: list[str]
    """All rules, as the Snakefile has them."""
    local_rules: list[str]
    """Rules that run on Snakemake's host with every executor."""
    set_resources: list[str]
    """Rules with resources of their own in the profile or on the command line."""
    jobs: list[Job] = []

    def runs_here(self, job: Job) -> bool:
        """Whether a job runs on the host of Snakemake itself."""
        return not self.on_cluster or job.rule in self.local_rules


def tell_configuration(config: Mapping[str, Any], workflow: Any) -> None:
    """Write how this Snakemake was called, in such a dry-run: after the Snakefile's last rule."""
    if not (folder := os.environ.get(variables.PLAN)):
        return
    from snakemake.cli import parse_args  # this process has it loaded

    said = DryRun(
        config=dict(config),
        on_cluster=parse_args(sys.argv[1:])[1].executor not in (None, "", "local"),
        rules=[rule.name for rule in workflow.rules],
        local_rules=sorted(workflow._localrules),  # `is_local` is true of all rules now
        set_resources=sorted(workflow.resource_settings.overwrite_resources),
    )
    (Path(folder) / CONFIGURATION).write_bytes(msgspec.json.encode(said))


def open_jobs() -> TextIO | None:
    """The file of such a dry-run's jobs, for the logger; it exists even if no job would run."""
    folder = os.environ.get(variables.PLAN)
    return (Path(folder) / JOBS).open("w", encoding="utf-8") if folder else None


def tell_job(record: Mapping[str, Any], jobs: TextIO) -> None:
    """Write the job of a `job_info` record to the file of `open_jobs`."""
    resources = {
        name: value if isinstance(value, int) else str(value)
        for name, value in record["resources"].items()
        if name not in INTERNAL and value is not None
    }
    output = list(map(str, record["output"]))
    job = Job(str(record["rule_name"]), output, int(record["threads"]), resources)
    jobs.write(f"{msgspec.json.encode(job).decode()}\n")


def read(folder: Path) -> DryRun:
    """The output of a dry-run. Raises OSError if it wrote nothing."""
    said = msgspec.json.decode((folder / CONFIGURATION).read_bytes(), type=DryRun)
    jobs = msgspec.json.Decoder(Job).decode_lines((folder / JOBS).read_bytes())
    return msgspec.structs.replace(said, jobs=jobs)


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
    """For all devices of a job."""
    cells: int = 0
    unsupported_cells: int = 0
    done: int = 0
    to_do: int = 0
    job_s: float = 0.0
    """Estimated time of the runs to do, one after another, s; runs without an estimate left out."""
    bases: Counter[Basis | None] = field(default_factory=Counter)
    """The number of runs to do by the basis of their estimate; None: without one."""

    @property
    def unknown(self) -> int:
        """Runs to do without an estimate."""
        return self.bases[None]

    @property
    def device_hours(self) -> float:
        """Hours of all devices of the jobs."""
        return self.job_s / HOUR_S * self.devices_per_job

    @property
    def cost_usd(self) -> float | None:
        """The cost of the jobs; None without a price."""
        price = self.price_usd_per_hour
        return None if price is None else price * self.job_s / HOUR_S


@dataclass(frozen=True)
class Jobs:
    """Jobs of a rule with the same requests in the same place."""

    count: int
    rule: str
    place: str
    threads: int
    resources: tuple[tuple[str, int | str], ...]
    """Their requests to a scheduler besides their place."""


@dataclass(frozen=True)
class Forecast:
    """The work of a plan."""

    runs: list[Runs]
    jobs: list[Jobs]
    on_cluster: bool
    unplaced: list[Jobs]
    """Training jobs that the profile sends to no partition of its own."""

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
    jobs, placed = _jobs(dry_run), dry_run.set_resources
    trained = [row for row in jobs if row.rule.startswith(paths.TRAIN_RULE)]
    unplaced = [row for row in trained if dry_run.on_cluster and row.rule not in placed]
    return Forecast(_runs(project, plan, dry_run.jobs), jobs, dry_run.on_cluster, unplaced)


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
        outcome = of_run(paths.OUTCOME, spec)
        if outcome not in planned:
            group.done += Path(outcome).exists()
            continue
        group.to_do += 1
        seconds, basis = estimator.of(spec) or (0.0, None)
        group.bases[basis] += 1
        group.job_s += seconds
    return list(groups.values())


def _jobs(dry_run: DryRun) -> list[Jobs]:
    """Equal jobs, counted, in the order of the Snakefile; all tables in one row, and all figures.
    Snakemake lists jobs in an order that changes from call to call."""
    rules = dry_run.rules
    counts: Counter[tuple[Any, ...]] = Counter()
    for job in sorted(dry_run.jobs, key=lambda job: rules.index(job.rule)):
        here = dry_run.runs_here(job)
        asked = {} if here else dict(sorted(job.resources.items()))
        partition = asked.pop("slurm_partition", "") or DEFAULT_PARTITION
        rule, place = _FAMILY.sub(r"\1_*", job.rule), HERE if here else str(partition)
        counts[rule, place, job.threads, tuple(asked.items())] += 1
    return [Jobs(count, *kind) for kind, count in counts.items()]
