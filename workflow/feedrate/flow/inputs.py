"""What runs read beside their data: hub checkpoints, fetched; a user's own; stores of pictures,
decoded once.

Where no run of a device needs any, an input is an empty list and no function: thousands of runs
plan faster so.
"""

import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.errors import ConfigError
from feedrate.config.plan import Plan
from feedrate.config.settings import ModelSettings
from feedrate.config.spec import RunSpec
from feedrate.core import paths
from feedrate.core.files import digest_file, digest_value
from feedrate.data.hub import PATTERNS
from feedrate.data.manifest import StoreSpec, store_spec
from feedrate.flow.digests import DigestCache
from feedrate.models.build import is_on_hub, local_folder

# What changed in files that runs rest on, since they were fetched or last used; light enough
# for every plan.

_SHORT = 16


def edited(index_path: Path, cache: DigestCache) -> str:
    """A digest of what differs now from the fetched files, or an empty text where nothing does.

    Empty too where nothing has been fetched yet, and for a folder source, whose files are the
    user's and are watched by `folder_state`. An unchanged file costs one stat.
    """
    try:
        index = json.loads(index_path.read_text(encoding="utf-8"))
        if index["root"]:
            return ""
        listed = {entry["path"]: entry["sha256"] for entry in [index["rows"], *index["files"]]}
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    now = {path: _state(index_path.parent / path, cache) for path in listed}
    different = {path: state for path, state in now.items() if state != listed[path]}
    return digest_value(different)[:_SHORT] if different else ""


def folder_state(path: Path, cache: DigestCache) -> str:
    """A digest of the names and contents of all files under `path`, hidden ones aside, or of the
    one file that it is.

    "absent" where there is neither. Only regular files are opened.
    """
    if path.is_file():
        return _state(path, cache)[:_SHORT]
    if not path.is_dir():
        return "absent"
    files = {str(f.relative_to(path)): _state(f, cache) for f in _visible(path)}
    return digest_value(files)[:_SHORT]


def weights_state(folder: Path, cache: DigestCache) -> str:
    """A digest of the names and contents of the files in `folder` that a model is read from.

    "absent" where there is none. What is beside them, as a model's card, does not count.
    """
    files = {file for pattern in PATTERNS for file in folder.glob(pattern)}
    states = {file.name: _state(file, cache) for file in sorted(files)}
    return digest_value(states)[:_SHORT] if states else "absent"


def _visible(folder: Path) -> Iterator[Path]:
    """The files under a folder, by name; links to folders are not followed, so no loop is."""
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_dir() and not entry.is_symlink():
            yield from _visible(entry)
        else:
            yield entry


def _state(path: Path, cache: DigestCache) -> str:
    """The SHA-256 of a regular file, or a word for anything else."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return "special"
        return cache.digest(path, digest_file)
    except OSError as error:
        return type(error).__name__


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
            self._states[folder] = weights_state(folder, self._cache)
            self._cache.save()
        return {"weights": self._states[folder]}

    def store(self, key: str) -> StoreSpec:
        """What a store is made for."""
        if key not in self._stores:  # asked for by name
            for spec in self._runs.values():
                self._stored(spec)
        return self._stores[key]

    def of_training(self, device: str) -> dict[str, Asked]:
        """The inputs that training on a device needs beside its data: `weights` and `store`.

        An input that no run of the device needs is left out, because each costs time in a plan.
        """
        needed: dict[str, Asked] = {}
        if self._checkpoints:
            needed["weights"] = self.checkpoints(device)
        specs = (spec for spec in self._runs.values() if spec.device == device)
        if any(spec.settings.loader.decode == "cache" for spec in specs):
            needed["store"] = lambda wildcards: self._stored(self._run(device, wildcards))
        return needed

    def checkpoints(self, device: str) -> Asked:
        """The fetched hub checkpoints that runs on a device start from."""
        if not self._checkpoints:
            return []
        return lambda wildcards: self._fetched(self._run(device, wildcards).settings.model)

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
