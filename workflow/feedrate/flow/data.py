"""Data and weights: which files they are, by the identity of what they are made from, and the jobs
that make them, as words of a shell."""

import shlex
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config import workflow
from feedrate.config.plan import Plan
from feedrate.config.project import Project
from feedrate.config.settings import ModelSettings
from feedrate.config.spec import RunSpec
from feedrate.core import paths
from feedrate.data.hub import PATTERNS
from feedrate.data.manifest import StoreSpec, store_spec
from feedrate.flow.identity import (
    Code,
    DigestCache,
    edited_files,
    file_state,
    folder_state,
    identity,
    plugin_file,
)
from feedrate.models.build import is_on_hub, local_folder


class Data:
    """The data and weights of a plan's runs."""

    def __init__(self, project: Project, root: Path, plan: Plan, digests: DigestCache) -> None:
        self._project, self._root, self._plan = project, root, plan
        self._digests = digests
        self._identities: dict[str, str] = {}
        self._stores: dict[str, StoreSpec] = {}

    # Identities

    def _raw(self, dataset: str) -> str:
        """The identity of a fetched dataset."""
        entry = workflow.find_dataset(self._project.config, dataset)
        source = plugin_file("feedrate.data.sources", str(entry.__struct_config__.tag))
        return self._fetched(f"raw {dataset}", entry, "data/fetch.py", source)

    def prepared(self, dataset: str) -> str:
        """The identity of a prepared dataset: the fetched dataset, edits of it, and code."""
        key = f"prepared {dataset}"
        if key not in self._identities:
            edits = edited_files(Path(self.raw_index(dataset)), self._digests)
            code = self._digests.of_code(Code(("data/prepare.py",), ("data",)))
            self._identities[key] = identity(self._raw(dataset), edits, code)
        return self._identities[key]

    def _fetched(
        self, key: str, entry: workflow.Dataset | workflow.Examples, *programs: str
    ) -> str:
        """The identity of data that `programs` fetch: settings, a folder's files, and code."""
        if key not in self._identities:
            state = ""
            if isinstance(entry, workflow.Folder | workflow.LocalExamples):
                state = folder_state(self._root / entry.path, self._digests)
            settings = msgspec.to_builtins(entry)
            settings.pop("max_bad_share", None)  # it changes no file
            code = self._digests.of_code(Code(programs, ("data",)))
            self._identities[key] = identity(settings, state, code)
        return self._identities[key]

    def weights(self, model: ModelSettings) -> str:
        """A digest of the files in a user's folder that a model is read from: not of its card.
        Fetched weights are named by their revision."""
        folder = local_folder(model)
        if folder is None:
            return ""
        key = f"weights {folder}"
        if key not in self._identities:
            files = (file for pattern in PATTERNS for file in folder.glob(pattern))
            self._identities[key] = identity({f.name: file_state(f, self._digests) for f in files})
        return self._identities[key]

    # Files

    def raw_index(self, dataset: str) -> str:
        """The list of a dataset's fetched files."""
        return paths.RAW_INDEX.format(dataset=dataset, identity=self._raw(dataset))

    def manifest(self, dataset: str) -> str:
        """The manifest of a prepared dataset."""
        return paths.MANIFEST.format(dataset=dataset, identity=self.prepared(dataset))

    def report(self, study: str) -> str:
        """The report on the data of a study's first run."""
        first = next(self._plan.of_study(study), None)
        dataset = first.dataset if first else self._project.config.dataset
        return paths.DATA_REPORT.format(dataset=dataset, identity=self.prepared(dataset))

    def drawn(self) -> str:
        """The data of a self-test: drawn here, so that it needs no network."""
        config = self._project.config
        drawn = [n for n, entry in config.datasets.items() if isinstance(entry, workflow.Generated)]
        return self.manifest(drawn[0] if drawn else config.dataset)

    def store(self, spec: RunSpec) -> list[str]:
        """The store of decoded pictures that a run reads."""
        settings = store_spec(spec.settings)
        if settings is None:
            return []
        programs = ("jobs/store.py", f"models/builders/{settings.model.name}.py")
        code = Code(programs, ("jobs", "models", "loading", "data"))
        weights = self.weights(settings.model)
        key = identity(msgspec.to_builtins(settings), weights, self._digests.of_code(code))
        self._stores[key] = settings
        prepared = self.prepared(spec.dataset)
        return [paths.STORE.format(store=key, dataset=spec.dataset, identity=prepared)]

    def examples(self, spec: RunSpec) -> list[str]:
        """The examples of Winoground that a run is evaluated on."""
        name = self._project.config.winoground
        if name is None or not spec.protocol.evaluate:
            return []
        entry = self._project.config.winoground_sets[name]
        copy = self._fetched(f"winoground {name}", entry, "data/winoground.py")
        return [paths.WINOGROUND.format(winoground=name, identity=copy)]

    def fetched_weights(self, model: ModelSettings) -> list[str]:
        """The list of a hub checkpoint's files."""
        if not model.checkpoint or not is_on_hub(model.checkpoint):
            return []
        return [paths.CHECKPOINT.format(checkpoint=_checkpoint_key(model))]

    # Jobs

    def fetch_dataset(self, name: str) -> str:
        """The job that fetches a dataset."""
        settings = workflow.find_dataset(self._project.config, name)
        return job("fetch_dataset", name=name, settings=settings)

    def fetch_winoground(self, name: str) -> str:
        """The job that fetches a copy of Winoground."""
        settings = self._project.config.winoground_sets[name]
        return job("fetch_winoground", name=name, settings=settings)

    def preprocess_dataset(self, name: str) -> str:
        """The job that prepares a dataset."""
        settings = workflow.find_dataset(self._project.config, name)
        return job("preprocess_dataset", settings=settings)

    def fetch_checkpoint(self, key: str) -> str:
        """The job that fetches a hub checkpoint."""
        for spec in self._plan.runs.values():
            model = spec.settings.model
            if model.checkpoint and _checkpoint_key(model) == key:
                revision = model.revision or "main"
                return job("fetch_checkpoint", name=model.checkpoint, revision=revision)
        raise KeyError(key)

    def store_spec(self, key: str) -> StoreSpec:
        """The settings of a store of decoded pictures."""
        if key not in self._stores:  # a job's process has not planned it yet
            for spec in self._plan.runs.values():
                self.store(spec)
        return self._stores[key]


def _checkpoint_key(model: ModelSettings) -> str:
    return paths.checkpoint_key(model.checkpoint or "", model.revision)


def job(program: str, /, **options: Any) -> str:
    """A job with its options in the syntax of a shell; options without a value are left out."""
    words = [program]
    for option, value in options.items():
        if value not in (None, "", []):
            words.append(f"--{option.replace('_', '-')}")
            for item in value if isinstance(value, list) else [value]:
                is_struct = isinstance(item, msgspec.Struct)
                words.append(msgspec.json.encode(item).decode() if is_struct else f"{item}")
    return shlex.join(words)
