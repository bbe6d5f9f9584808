"""What the scheduler of a cluster would never run, before the first job: it refuses some jobs only
when they are sent, which may be hours after the start, and never starts others."""

import argparse
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from feedrate.config.project import Project
from feedrate.core import paths, scheduler
from feedrate.flow.resources import training


def problems(options: argparse.Namespace, project: Project, devices: Iterable[str]) -> list[str]:
    """For each device whose training jobs the scheduler would never run, the rule and the reason.
    `options` are Snakemake's. Empty for other executors. Raises SchedulerError without an answer.
    """
    if options.executor != scheduler.EXECUTOR:
        return []
    requests = {
        paths.rule_of(paths.TRAIN_RULE, device): _resources(options, project, device)
        for device in devices
    }
    return [f"{rule}: {reason}" for rule, reason in scheduler.problems(requests).items()]


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
