"""What Slurm would never run, before the first job: it refuses some jobs only when they are sent,
which may be hours after the start, and never starts others."""

import argparse
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from feedrate.config.project import Project
from feedrate.core import paths, slurm
from feedrate.flow.resources import training

OPTIONS = {
    "slurm_partition": "--partition",
    "slurm_account": "--account",
    "qos": "--qos",
    "constraint": "--constraint",
    "nodes": "--nodes",
    "tasks": "--ntasks",
    "cpus_per_task": "--cpus-per-task",
    "mem_mb": "--mem",
    "runtime": "--time",
    "gres": "--gres",
}
"""The options of sbatch with which the executor requests a job's resources."""
GRES = re.compile(r"\w+(:[\w.]+)?(:\d+[TGM]?)?")
"""The form of `gres` that the executor takes."""


def problems(options: argparse.Namespace, project: Project, devices: Iterable[str]) -> list[str]:
    """For each device whose training jobs Slurm would never run, the rule and the reason. `options`
    are Snakemake's. Empty for other executors. Raises SlurmError if Slurm does not answer."""
    if options.executor != "slurm":
        return []
    partitions = slurm.partitions()
    texts = {
        device: _problem(_resources(options, project, device), partitions) for device in devices
    }
    return [f"{paths.rule_of(paths.TRAIN_RULE, d)}: {text}" for d, text in texts.items() if text]


def _resources(options: argparse.Namespace, project: Project, device: str) -> dict[str, Any]:
    """The resources of a training job in its last try, which may have the most time: the rule's own
    take precedence over --default-resources, and --set-resources over both."""
    rule, tries = paths.rule_of(paths.TRAIN_RULE, device), 1 + int(options.retries or 0)
    own = training(project, device, retried=tries > 1)
    if callable(own["runtime"]):
        studies = (SimpleNamespace(study=name) for name in project.studies)
        own["runtime"] = max(own["runtime"](wildcards, tries) for wildcards in studies)
    defaults = {"cpus_per_task": project.devices[device].threads}
    defaults |= _evaluated(options.default_resources, tries)
    return defaults | own | _evaluated((options.set_resources or {}).get(rule), tries)


def _evaluated(resources: Mapping[str, Any] | None, attempt: int) -> dict[str, Any]:
    """The values of resources, without expressions that depend on a job's files."""
    from snakemake.exceptions import WorkflowError

    job = {"input": [], "attempt": attempt, "threads": 1, "rulename": "", "async_run": None}
    values = {}
    for name, resource in (resources or {}).items():
        try:
            values[name] = resource.evaluate(None, **job).value
        except WorkflowError:
            continue
    return values


def _problem(resources: Mapping[str, Any], partitions: Sequence[slurm.Partition]) -> str:
    """Why Slurm would never run a job with these resources; empty if it would, maybe later."""
    gres = str(resources.get("gres") or "")
    if gres and not GRES.fullmatch(gres):
        return (
            f"gres {gres!r} is not allowed; expected NAME:COUNT or NAME:TYPE:COUNT. A type with a "
            'hyphen goes into `slurm_extra`, with `gres: ""` (profiles/README.md)'
        )
    names = str(resources.get("slurm_partition") or "")
    own = [p for p in partitions if (p.name in names.split(",") if names else p.is_default)]
    if not own:
        known = ", ".join(dict.fromkeys(partition.name for partition in partitions))
        return f"there is no partition {names or 'by default'}; known: {known}"
    limits_min = [partition.limit_min for partition in own if partition.limit_min is not None]
    runtime_min = resources.get("runtime") or 0
    if len(limits_min) == len(own) and runtime_min > max(limits_min):
        limit = f"{own[0].name} allows {max(limits_min):.0f}"
        return f"its last try may take {runtime_min} minutes; {limit}"
    words = [f"{OPTIONS[name]}={resources[name]}" for name in OPTIONS if resources.get(name)]
    if gpus := resources.get("gpu"):
        model = resources.get("gpu_model")
        words.append(f"--gpus={model}:{gpus}" if model else f"--gpus={gpus}")
    return slurm.refusal([*words, *shlex.split(resources.get("slurm_extra") or "")], own)
