"""What runs read beside their data: hub checkpoints, fetched; a user's own; stores of pictures,
decoded once.

Where no run of a device needs any, an input is an empty list and no function: thousands of runs
plan faster so.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from feedrate import paths
from feedrate.config.digest import DigestCache
from feedrate.config.load import ConfigError
from feedrate.config.plan import Plan
from feedrate.config.settings import ModelSettings, RunSpec
from feedrate.config.store import StoreSpec, store_spec
from feedrate.data import watch
from feedrate.models.checkpoint import is_on_hub, local_folder

Asked = Callable[[Any], list[str]] | list[str]
"""A rule's input: files, or a function of wildcards that names them."""


class Inputs:
    """Finds the files; their rules are told what to make by `checkpoint` and `store`."""

    def __init__(self, plan: Plan, cache: DigestCache) -> None:
        """`cache` spares to read weights again."""
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
        """Params beside the settings: of a checkpoint's folder that is the user's, the state of its
        files. Of one that was fetched, what was is an input."""
        folder = local_folder(model)
        if folder is None:
            return {}
        if folder not in self._states:
            self._states[folder] = watch.weights_state(folder, self._cache)
            self._cache.save()
        return {"weights": self._states[folder]}

    def store(self, key: str) -> StoreSpec:
        """What a store is made for."""
        if key not in self._stores:  # asked for by name
            for spec in self._runs.values():
                self._stored(spec)
        return self._stores[key]

    def checkpoints(self, device: str) -> Asked:
        """What was fetched of the hub checkpoints that runs on a device start from."""
        if not self._checkpoints:
            return []
        return lambda wildcards: self._fetched(self._run(device, wildcards).settings.model)

    def stores(self, device: str) -> Asked:
        """The stores of decoded pictures that runs on a device read, if their loaders want one."""
        specs = (spec for spec in self._runs.values() if spec.device == device)
        if not any(spec.settings.loader.decode == "cache" for spec in specs):
            return []
        return lambda wildcards: self._stored(self._run(device, wildcards))

    def checkpoints_of_store(self, key: str) -> list[str]:
        """What was fetched of the checkpoint whose tokenizer a store needs."""
        return self._fetched(self.store(key).model)

    def first_run(self, device: str) -> RunSpec:
        """The first training run of a device, for which a loader is chosen: studies' baselines come
        first. Raises ConfigError where no study trains."""
        runs = (r for r in self._runs.values() if r.device == device and r.task == "training")
        first = next(runs, None)
        if first is None:
            raise ConfigError(
                f"config/config.yaml: studies: none of them trains on {device}, so there is no "
                "loader to tune; name one that does"
            )
        return first

    def of_tuning(self, device: str) -> list[str]:
        """What the choice of a loader reads: the run's checkpoint, and the store of `cache`."""
        spec = self.first_run(device)
        loader = msgspec.structs.replace(spec.settings.loader, decode="cache", scaled_decode=False)
        cached = msgspec.structs.replace(spec.settings, loader=loader)
        return [
            *self._fetched(spec.settings.model),
            *self._stored(msgspec.structs.replace(spec, settings=cached)),
        ]

    def _run(self, device: str, wildcards: Any) -> RunSpec:
        return self._runs[wildcards.study, device, wildcards.cell, int(wildcards.repeat)]

    def _fetched(self, model: ModelSettings) -> list[str]:
        key = _key(model)
        return [paths.CHECKPOINT.format(checkpoint=key)] if key in self._checkpoints else []

    def _stored(self, spec: RunSpec) -> list[str]:
        needed = store_spec(spec.settings)
        if needed is None:
            return []
        key = needed.key
        self._stores[key] = needed
        return [paths.STORE.format(dataset=spec.dataset, store=key)]


def _key(model: ModelSettings) -> str:
    return paths.checkpoint_key(model.checkpoint or "", model.revision)
