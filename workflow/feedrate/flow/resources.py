"""What the jobs of a device request from a scheduler, and which of them it would never run: it
refuses some only when they are sent, which may be hours after the start, and never starts others.
"""

import argparse
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, TypeVar

from feedrate.config.devices import Device
from feedrate.config.plan import timeouts_min
from feedrate.config.project import Project
from feedrate.core import paths, scheduler

Function = TypeVar("Function", bound=Callable[..., Any])

START_MIN = 20  # minutes that a scheduler allows a training job beyond its protocol's `timeout_min`


def with_cached_signature(function: Function) -> Function:
    """The function with its signature stored on it: Snakemake asks `inspect` for it about ten times
    per job, which takes seconds for 10,000."""
    function.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return function


def training(project: Project, device: str, *, retried: bool) -> dict[str, Any]:
    """What a training job requests; its time limit doubles after the first try. If no job is
    `retried`, constants replace functions, which make the plan of thousands of runs slower."""
    limits_min = {
        study: math.ceil(minutes[device]) + START_MIN
        for study, minutes in timeouts_min(project).items()
        if device in minutes
    }
    tries: Any = 1
    runtime: Any = max(limits_min.values())
    if retried:
        tries = with_cached_signature(lambda _, attempt: attempt)
    if retried or len(set(limits_min.values())) > 1:
        runtime = with_cached_signature(
            lambda wildcards, attempt: limits_min[wildcards.study] * min(attempt, 2)
        )
    return {"tries": tries, "runtime": runtime, **of_device(project.devices[device])}


def of_device(entry: Device) -> dict[str, Any]:
    """What each job on a device requests; a change of it reruns nothing."""
    requests: dict[str, Any] = {
        "gres": entry.job.gres,
        "mem_mb": entry.job.memory_gib and int(entry.job.memory_gib * 1024),
        "constraint": entry.job.constraint,
    }
    if entry.nodes > 1:
        requests |= {"nodes": entry.nodes, "tasks": entry.nodes, "mpi": "srun"}
        # Otherwise the executor requests --ntasks-per-gpu=<tasks>, which no node can satisfy.
        requests["tasks_per_gpu"] = 0
    return {name: value for name, value in requests.items() if value is not None}


def problems(options: argparse.Namespace, project: Project, devices: Iterable[str]) -> list[str]:
    """For each device whose training jobs the scheduler would never run, the rule and the reason.
    `options` are Snakemake's. Empty for other executors. Raises SchedulerError without an answer.
    """
    if options.executor != scheduler.EXECUTOR:
        return []
    tries, partitions, problems = 1 + int(options.retries or 0), scheduler.partitions(), []
    for device in devices:
        rule = paths.rule_of(paths.TRAIN_RULE, device)
        own = training(project, device, retried=tries > 1)
        if callable(own["runtime"]):  # the last try may have the most time
            studies = (SimpleNamespace(study=name) for name in project.studies)
            own["runtime"] = max(own["runtime"](wildcards, tries) for wildcards in studies)
        resources = {"cpus_per_task": project.devices[device].threads}
        resources |= _evaluated(options.default_resources, tries)
        resources |= own  # the rule's own take precedence, and --set-resources over both
        resources |= _evaluated((options.set_resources or {}).get(rule), tries)
        reason = scheduler.problem(resources, partitions)
        if reason:
            problems.append(f"{rule}: {reason}")
    return problems


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
