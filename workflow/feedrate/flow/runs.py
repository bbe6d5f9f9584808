"""A run in the plan: which files it reads, what it requests, how long it will take."""

import inspect
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from feedrate.config.devices import Device
from feedrate.config.plan import Plan, timeouts_min
from feedrate.config.project import Project
from feedrate.config.settings import ModelSettings, Settings
from feedrate.config.spec import Protocol, RunSpec
from feedrate.config.study import Published, Study
from feedrate.config.values import Level
from feedrate.core import paths
from feedrate.data.manifest import StoreSpec, store_spec
from feedrate.flow.digests import DigestCache, weights_state
from feedrate.models.build import is_on_hub, local_folder

Function = TypeVar("Function", bound=Callable[..., Any])


def signed(function: Function) -> Function:
    """The function with its signature stored on it: Snakemake asks `inspect` for it about ten times
    per job, which takes seconds for 10,000."""
    function.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return function


Asked = Callable[[Any], list[str]] | list[str]
"""A rule's input: files, or a function of wildcards that names them."""


class Inputs:
    """The inputs of runs besides their data: hub checkpoints, a user's own checkpoints, stores of
    decoded pictures, Winoground. The rules that make them ask `checkpoint` and `store` for the
    settings."""

    def __init__(self, plan: Plan, cache: DigestCache, winoground: str | None = None) -> None:
        """`cache` keeps the digests of weights; `winoground` names the copy in use."""
        self._winoground = winoground
        self._runs = plan.runs
        self._cache = cache
        self._states: dict[Path, str] = {}
        self._checkpoints = {
            _key(model): (model.checkpoint, model.revision or "main")
            for model in (spec.settings.model for spec in plan.runs.values())
            if model.checkpoint and is_on_hub(model.checkpoint)
        }
        self._stores: dict[str, StoreSpec] = {}

    def checkpoint(self, key: str) -> tuple[str, str]:
        """A hub checkpoint's name and revision."""
        return self._checkpoints[key]

    def weights(self, model: ModelSettings) -> dict[str, str]:
        """The digest of a user's folder with weights; fetched ones are an input instead."""
        folder = local_folder(model)
        if folder is None:
            return {}
        if folder not in self._states:
            self._states[folder] = weights_state(folder, self._cache)
            self._cache.save()
        return {"weights": self._states[folder]}

    def store(self, key: str) -> StoreSpec:
        """The settings of a store."""
        if key not in self._stores:  # it was asked for by its name
            for spec in self._runs.values():
                self._stored(spec)
        return self._stores[key]

    def of_training(self, device: str) -> dict[str, Asked]:
        """The `weights`, `store` and `winoground` that training on a device needs; an input that
        none of its runs needs is left out, because each one makes the plan of thousands of runs
        slower."""
        needed: dict[str, Asked] = {}
        if self._checkpoints:
            needed["weights"] = self.checkpoints(device)
        specs = [spec for spec in self._runs.values() if spec.device == device]
        if any(spec.settings.loader.decode == "cache" for spec in specs):
            needed["store"] = lambda wildcards: self._stored(self._run(device, wildcards))
        if any(self.winoground(spec) for spec in specs):
            needed["winoground"] = lambda wildcards: self.winoground(self._run(device, wildcards))
        return needed

    def winoground(self, spec: RunSpec) -> list[str]:
        """The examples that a run is evaluated on."""
        if self._winoground is None or not spec.protocol.evaluate:
            return []
        return [paths.WINOGROUND.format(winoground=self._winoground)]

    def data(self, device: str) -> Any:
        """The prepared dataset of each run on a device: a file, where all runs share it."""
        names = {spec.dataset for spec in self._runs.values() if spec.device == device}
        if len(names) == 1:
            return paths.MANIFEST.format(dataset=names.pop())
        return signed(
            lambda wildcards: paths.MANIFEST.format(dataset=self._run(device, wildcards).dataset)
        )

    def checkpoints(self, device: str) -> Asked:
        """The fetched hub checkpoints that runs on a device start from."""
        if not self._checkpoints:
            return []
        return lambda wildcards: self._fetched(self._run(device, wildcards).settings.model)

    def checkpoints_of_store(self, key: str) -> list[str]:
        """The fetched checkpoint whose tokenizer a store needs."""
        return self._fetched(self.store(key).model)

    def _run(self, device: str, wildcards: Any) -> RunSpec:
        return self._runs[wildcards.study, device, wildcards.cell, int(wildcards.repeat)]

    def _fetched(self, model: ModelSettings) -> list[str]:
        key = _key(model)
        return [paths.CHECKPOINT.format(checkpoint=key)] if key in self._checkpoints else []

    def _stored(self, spec: RunSpec) -> list[str]:
        needed = store_spec(spec.settings)
        if needed is None:
            return []
        self._stores[needed.key] = needed
        return [paths.STORE.format(dataset=spec.dataset, store=needed.key)]


def _key(model: ModelSettings) -> str:
    return paths.checkpoint_key(model.checkpoint or "", model.revision)


START_MIN = 20
"""Minutes that a scheduler allows a training job beyond its protocol's `timeout_min`."""
TESTING_MIN = 60
"""Minutes that a scheduler allows for a self-test, which takes ten."""


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
        tries: Any = signed(lambda _, attempt: attempt) if retried else 1
        runtime: Any = signed(
            lambda wildcards, attempt: self._minutes[wildcards.study, device] * min(attempt, 2)
        )
        if not retried and len(limits_min) == 1:
            (runtime,) = limits_min
        return {"tries": tries, "runtime": runtime, **_of_device(self._devices[device])}

    def testing(self, device: str) -> dict[str, Any]:
        """The requests of a device's self-test."""
        return {"runtime": TESTING_MIN, **_of_device(self._devices[device])}


def _of_device(entry: Device) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "gres": entry.job.gres,
        "mem_mb": entry.job.memory_gib and int(entry.job.memory_gib * 1024),
        "constraint": entry.job.constraint,
    }
    if entry.nodes > 1:
        asked |= {"nodes": entry.nodes, "tasks": entry.nodes, "mpi": "srun"}
        # Otherwise the executor requests --ntasks-per-gpu=<tasks>, which no node can satisfy.
        asked["tasks_per_gpu"] = 0
    return {name: value for name, value in asked.items() if value is not None}


KINDS = 3
"""Kinds of blocks after the window: live, loader and model."""
START_S = 120.0
"""A job's start (imports, model, first step) where no run has shown it; on Gaudi often longer."""

Basis = Literal["cell", "study", "published", "lowest", "scaled"]
"""The bases of an estimate, the best first: earlier runs of the cell, earlier runs of other cells
of the study on the device, a published rate of the cell, the lowest published rate of the device,
published rates of another number of these devices."""


class _Spec(msgspec.Struct, frozen=True):
    """The part of a spec that the duration depends on."""

    cell: str
    count: int
    settings: Settings
    protocol: Protocol


class _Past(NamedTuple):
    """An earlier run: its window, and all else of the job, s."""

    cell: str
    samples: int
    window_s: float
    rest_s: float


class Estimator:
    """Estimates the duration of runs from the records in the working directory."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._past: dict[tuple[str, str], list[_Past]] = {}

    def of(self, spec: RunSpec) -> tuple[float, Basis] | None:
        """The duration of a run's job, s, and its basis; None if there is none.

        Earlier runs of the same cell count, else all of the same study and device: the window is
        scaled to this run's samples, the rest of the job taken as it was. To published rates, a
        job's start and the blocks after its window are added.
        """
        key = spec.study, spec.device
        if key not in self._past:
            self._past[key] = list(_read_past(*key))
        past = self._past[key]
        alike = [run for run in past if run.cell == spec.cell]
        samples = _window_samples(spec)
        if past:
            times_s = [run.rest_s + run.window_s * samples / run.samples for run in alike or past]
            return median(times_s), "cell" if alike else "study"
        if (published := self._published_rate(spec)) is None:
            return None
        rate, basis = published
        protocol = spec.protocol
        training_s = samples * protocol.steps / (protocol.steps - protocol.warmup_steps) / rate
        return START_S + training_s + KINDS * protocol.ceiling_s, basis

    def _published_rate(self, spec: RunSpec) -> tuple[float, Basis] | None:
        """Published samples/s of a cell, the headline edition's first; else the device's lowest, so
        that the time is not estimated too short. Rates of another number of the same devices count
        if there are no others, in proportion to the number."""
        entry, study = self._project.devices.get(spec.device), self._project.studies[spec.study]
        names = {spec.device, entry.variant_of if entry else None}
        rates = [r for r in self._project.published[spec.study] if r.metric == "samples_per_s"]
        rows = [row for row in rates if row.device in names]
        if not rows:
            return None
        counted = [row for row in rows if row.count == spec.count]
        rows = counted or rows
        cell = [row for row in rows if _is_cell(row, study, spec.levels)]
        best = [row for row in cell if row.headline] or cell or rows
        basis: Basis = "scaled" if not counted else "published" if cell else "lowest"
        return min(row.value / row.count for row in best) * spec.count, basis


def _is_cell(row: Published, study: Study, levels: dict[str, Level]) -> bool:
    """Whether a published number belongs to the cell with these levels. Factors that it does not
    name have the baseline's level; a number that names no factor belongs to no cell."""
    named = study.baseline | row.levels
    return bool(row.levels) and {factor: named[factor] for factor in study.factors} == levels


def _window_samples(spec: RunSpec | _Spec) -> int:
    """Samples of the timed window, all ranks."""
    train, protocol = spec.settings.train, spec.protocol
    steps = protocol.steps - protocol.warmup_steps
    return steps * train.batch_size * train.gradient_accumulation * spec.count


def _read_past(study: str, device: str) -> Iterator[_Past]:
    """The runs of a study on a device with status `ok`, including those of former cells."""
    for file in Path().glob(paths.RECORD.format(study=study, device=device, cell="*", repeat="*")):
        try:
            record = msgspec.json.decode(file.read_bytes())
            if record["status"] != "ok":
                continue
            spec = msgspec.convert(record["spec"], _Spec)
            window_s = float(record["measurement"]["wall_s"])
            rest_s = max(float(record["provenance"]["duration_s"]) - window_s, 0.0)
        except (OSError, msgspec.MsgspecError, KeyError, TypeError):
            continue  # of another version, or being replaced
        if samples := _window_samples(spec):
            yield _Past(spec.cell, samples, window_s, rest_s)
