"""What the jobs of a device ask a cluster for; a change of it reruns nothing."""

import math
from typing import Any

from feedrate.config.device import Device
from feedrate.config.plan import Project, timeouts_min

START_MIN = 20
"""Minutes that a scheduler allows a training job beyond its protocol's `timeout_min`."""

TUNING_MIN = 60
"""Minutes that a scheduler allows for the advice on a loader, which takes a few."""


class Resources:
    """Snakemake's `resources` of the rules of each device."""

    def __init__(self, project: Project) -> None:
        self._devices = project.devices
        self._minutes = {
            (study, device): math.ceil(minutes) + START_MIN
            for study, of_device in timeouts_min(project).items()
            for device, minutes in of_device.items()
        }

    def training(self, device: str) -> dict[str, Any]:
        """What a training job asks for.

        The time limit is what the protocol allows and a start, and after a fault twice that.
        """
        return {
            "tries": lambda _, attempt: attempt,
            "runtime": lambda wc, attempt: self._minutes[wc.study, device] * min(attempt, 2),
            **_of_device(self._devices[device]),
        }

    def tuning(self, device: str) -> dict[str, Any]:
        """What the job that advises on a loader asks for."""
        return {"runtime": TUNING_MIN, **_of_device(self._devices[device])}


def _of_device(entry: Device) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "gres": entry.job.gres,
        "mem_mb": entry.job.memory_gib and int(entry.job.memory_gib * 1024),
        "constraint": entry.job.constraint,
    }
    if entry.nodes > 1:
        asked |= {"nodes": entry.nodes, "tasks": entry.nodes, "mpi": "srun"}
        # Else the executor asks for --ntasks-per-gpu=<tasks>, which no node can satisfy.
        asked["tasks_per_gpu"] = 0
    return {name: value for name, value in asked.items() if value is not None}
