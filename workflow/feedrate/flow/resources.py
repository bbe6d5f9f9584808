"""What the jobs of a device request from a scheduler."""

import inspect
import math
from collections.abc import Callable
from typing import Any, TypeVar

from feedrate.config.devices import Device
from feedrate.config.plan import timeouts_min
from feedrate.config.project import Project

Function = TypeVar("Function", bound=Callable[..., Any])

START_MIN = 20
"""Minutes that a scheduler allows a training job beyond its protocol's `timeout_min`."""
TESTING_MIN = 60
"""Minutes that a scheduler allows for a self-test, which takes ten."""


def with_cached_signature(function: Function) -> Function:
    """The function with its signature stored on it: Snakemake asks `inspect` for it about ten times
    per job, which takes seconds for 10,000."""
    function.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return function


class Resources:
    """Snakemake's `resources` of the rules of each device; a change of them reruns nothing."""

    def __init__(self, project: Project) -> None:
        self._devices = project.devices
        self._minutes = {
            (study, device): math.ceil(minutes) + START_MIN
            for study, of_device in timeouts_min(project).items()
            for device, minutes in of_device.items()
        }

    def training(self, device: str, *, retried: bool) -> dict[str, Any]:
        """The requests of a training job; its time limit doubles after the first try. If no job is
        `retried`, constants replace functions, which make the plan of thousands of runs slower."""
        limits_min = {limit for (_, name), limit in self._minutes.items() if name == device}
        tries: Any = 1
        runtime: Any = max(limits_min)
        if retried:
            tries = with_cached_signature(lambda _, attempt: attempt)
        if retried or len(limits_min) > 1:
            runtime = with_cached_signature(
                lambda wildcards, attempt: self._minutes[wildcards.study, device] * min(attempt, 2)
            )
        return {"tries": tries, "runtime": runtime, **_of_device(self._devices[device])}

    def testing(self, device: str) -> dict[str, Any]:
        """The requests of a device's self-test."""
        return {"runtime": TESTING_MIN, **_of_device(self._devices[device])}


def _of_device(entry: Device) -> dict[str, Any]:
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
