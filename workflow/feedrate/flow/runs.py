"""What is scored: the models that runs keep, and the table of what they score."""

import inspect
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from feedrate.config.devices import Device
from feedrate.config.plan import Plan, keeps_weights, timeouts_min
from feedrate.config.project import Project
from feedrate.config.spec import RunSpec
from feedrate.core import paths
from feedrate.core.files import digest_file
from feedrate.jobs.earlier import Digests, still_pruned
from feedrate.jobs.events import NOT_TRIED
from feedrate.results.settings import QualitySettings, ScoredRun

# Which try a job is: what failed is tried again by the next call, since its number has changed.


Function = TypeVar("Function", bound=Callable[..., Any])


def signed(function: Function) -> Function:
    """The function with its signature kept on it.

    Snakemake asks `inspect.signature` about ten times per job; for 10,000 jobs this takes seconds.
    """
    function.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return function


class Attempts:
    """Numbers by the file that a job leaves, each taken once per plan, so that what a job leaves
    behind does not change the plan that it belongs to."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._data: dict[str, str] = {}

    def next(self, file: str, *, stands: Callable[[str], bool] | None = None) -> int:
        """1 at first; after a failure the next number, which is a changed param: tried again.

        So is a run beside which another training job was seen. Out of memory is a result and is
        not tried again, unless by its cause it no longer `stands`.
        """
        if file not in self._numbers:
            self._numbers[file] = _next_attempt(file, stands)
        return self._numbers[file]

    def of_run(self, spec: RunSpec, source: str) -> int:
        """The same for a run that the code of the digest `source` makes: one that was not tried is
        tried when no ladder leaves it out any more, or what it was left out for is no result now.
        """

        def stands(cause: str) -> bool:
            if not cause.startswith(NOT_TRIED):
                return True
            run = paths.run_dir(spec.study, spec.device, spec.cell, spec.repeat)
            digests = Digests(source, self._digest_of(spec.dataset))
            return still_pruned(cause, spec, digests, run)

        return self.next(_of_run(paths.OUTCOME, spec), stands=stands)

    def _digest_of(self, dataset: str) -> str:
        """Of the prepared data, as it is when the plan is made."""
        if dataset not in self._data:
            manifest = Path(paths.MANIFEST.format(dataset=dataset))
            self._data[dataset] = digest_file(manifest) if manifest.is_file() else ""
        return self._data[dataset]


def _next_attempt(file: str, stands: Callable[[str], bool] | None) -> int:
    try:
        with open(file, encoding="utf-8") as stream:  # noqa: PTH123 (10,000 of them at a plan)
            last = json.load(stream)
        status, cause = last["status"], str(last.get("cause", ""))
        disturbed = bool((last.get("machine_before") or {}).get("other_training_jobs"))
        fallen = status == "out_of_memory" and stands is not None and not stands(cause)
        return int(last["attempt"]) + (status == "failed" or disturbed or fallen)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 1


Params = dict[str, Any]


class Scored:
    """Answers for the rules that score models and collect the scores."""

    def __init__(
        self,
        project: Project,
        plan: Plan,
        attempts: Attempts,
        params: Callable[[dict[str, Any], str], Params],
    ) -> None:
        """`params` makes a rule's params of settings and the name of its code."""
        self._project, self._plan = project, plan
        self._attempts, self._params = attempts, params

    def files(self, study: str) -> list[str]:
        """The scores of each model that a study's runs keep."""
        return [_of_run(paths.QUALITY, spec) for spec in self._kept(study)]

    def table(self, study: str) -> list[str]:
        """The study's table of scores; none where no run keeps a model."""
        return [paths.QUALITY_CSV.format(study=study)] if self._kept(study) else []

    def scoring(self, study: str, device: str, cell: str, repeat: str) -> Params:
        """All that makes a model be scored again, but the run's outcome and data, which are
        inputs."""
        spec = self._plan.runs[study, device, cell, int(repeat)]
        return {
            **self._params(msgspec.to_builtins(spec), "scored"),
            "model": _of_run(paths.MODEL, spec),
            "attempt": self._attempts.next(_of_run(paths.QUALITY, spec)),
        }

    def collecting(self, study: str) -> Params:
        """Which run each file of scores belongs to."""
        runs = [
            ScoredRun(
                file=_of_run(paths.QUALITY, spec),
                device=spec.device,
                cell=spec.cell,
                levels=spec.levels,
                repeat=spec.repeat,
            )
            for spec in self._kept(study)
        ]
        factors = self._project.studies[study].factors
        settings = QualitySettings(study=study, factors=factors, runs=runs)
        return self._params(msgspec.to_builtins(settings), "qualities")

    def _kept(self, study: str) -> list[RunSpec]:
        config = self._project.config
        return [spec for spec in self._plan.of_study(study) if keeps_weights(spec, config)]


def _of_run(path: str, spec: RunSpec) -> str:
    return path.format(study=spec.study, device=spec.device, cell=spec.cell, repeat=spec.repeat)


# What the jobs of a device ask a cluster for; a change of it reruns nothing.

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
            "tries": signed(lambda _, attempt: attempt),
            "runtime": signed(
                lambda wildcards, attempt: self._minutes[wildcards.study, device] * min(attempt, 2)
            ),
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
