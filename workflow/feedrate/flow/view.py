"""The plan as the rules ask for it: targets, inputs and params.

A job's params are one dict: the settings that it uses and the digest of its code. The job runs
again when, and only when, one of these or an input has changed.
"""

import os
import re
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config import workflow
from feedrate.config.devices import Device
from feedrate.config.plan import Plan, make_plan, runnable
from feedrate.config.project import Project
from feedrate.config.spec import RunSpec, library_of
from feedrate.config.values import subset
from feedrate.core import paths, variables
from feedrate.core.files import digest_file, write_text
from feedrate.flow import digests
from feedrate.flow.attempts import Attempts, of_run
from feedrate.flow.runs import Inputs, Resources
from feedrate.report import params as report
from feedrate.results import params as results

KEPT = Path(".snakemake/feedrate")
"""Files for the next plan and for jobs; no result needs them."""

Params = dict[str, Any]


class PlanView:
    """Answers in plain strings, numbers, lists and dicts, so that Snakemake can compare params."""

    def __init__(self, project: Project, root: Path, plan: Plan | None = None) -> None:
        """`plan`: a part of the project's plan; None: all that can run here or has a result."""
        self.project = project
        self._root = root
        self._cache = digests.DigestCache(KEPT / "digests.2.json")
        self._attempts = Attempts(lambda file: str(self._cache.digest(file, digest_file)))
        self._sources: dict[tuple[str, ...], str] = {}
        self.plan = plan or runnable(
            project,
            make_plan(project),
            lambda spec: self._attempts.has_ended(spec, self._measured(spec)["source"]),
        )
        self._order = {key: number for number, key in enumerate(self.plan.runs)}
        self.inputs = Inputs(self.plan, self._cache, project.config.winoground)
        self.resources = Resources(project)

    # Targets

    def devices(self) -> list[tuple[str, Device]]:
        """The devices that are trained on, with their registry entries."""
        return [(name, self.project.devices[name]) for name in self.project.config.devices]

    def dataset(self, study: str) -> str:
        """The dataset that the pages of a study describe: that of its first run."""
        first = next(self.plan.of_study(study), None)
        return first.dataset if first else self.project.config.dataset

    def outcomes(self, study: str, device: str) -> list[str]:
        """The outcomes of all runs of a study on a device."""
        return [of_run(paths.OUTCOME, spec) for spec in self._runs(study, device)]

    def parsed(self, study: str) -> list[str]:
        """For each device of a study, the file that is written once its runs are parsed."""
        devices = dict.fromkeys(spec.device for spec in self.plan.of_study(study))
        return [paths.RECORDS.format(study=study, device=device) for device in devices]

    def stale(self, study: str, device: str) -> set[str]:
        """The files of a study on a device that have to be made again; see `Attempts.stale`."""
        runs = self._runs(study, device)
        return self._attempts.stale(runs, lambda spec: self._measured(spec)["source"])

    def pages(self, study: str) -> list[str]:
        """All tables and figures of a study."""
        entry = self.project.studies[study]
        tables = [paths.TABLE.format(study=study, table=page.name) for page in entry.tables]
        return tables + [paths.FIGURE.format(study=study, figure=p.name) for p in entry.figures]

    def captions(self, part: str) -> list[tuple[str, str]]:
        """The captions of all `tables` or `figures`, with a pattern of their pages' names."""
        names: dict[str, dict[str, None]] = {}
        for study in self.project.studies.values():
            for page in getattr(study, part):
                names.setdefault(page.caption, {})[re.escape(page.name)] = None
        return [(caption, "|".join(found)) for caption, found in names.items()]

    def inputs_of(self, study: str, part: report.Part, name: str) -> list[str]:
        """The files that a table or figure is made from."""
        kind = report.find_page(self.project, study, part, name).kind
        return report.inputs_of(part, kind, study, self.dataset(study))

    # Params of data and training

    def fetching(self, name: str) -> Params:
        """A dataset's settings, and for a folder the state of its files."""
        entry = workflow.find_dataset(self.project.config, name)
        return self._fetching(entry, "fetched", f"data/sources/{entry.__struct_config__.tag}.py")

    def fetching_winoground(self, name: str) -> Params:
        """The source of a copy of Winoground, and for a local one the state of its files."""
        return self._fetching(self.project.config.winoground_sets[name], "winoground")

    def _fetching(
        self, entry: workflow.Dataset | workflow.Examples, code: str, *programs: str
    ) -> Params:
        state = ""
        if isinstance(entry, workflow.Folder | workflow.LocalExamples):
            state = digests.folder_state(self._root / entry.path, self._cache)
        return {**self._params(_as_made(entry), code, *programs), "state": state}

    def preparing(self, name: str) -> Params:
        """A dataset's settings, and a digest of the fetched files that were edited."""
        edited = digests.edited(Path(paths.RAW_INDEX.format(dataset=name)), self._cache)
        settings = _as_made(workflow.find_dataset(self.project.config, name))
        return {**self._params(settings, "prepared"), "edited": edited}

    def fetching_checkpoint(self, key: str) -> Params:
        """A hub checkpoint's name and revision."""
        name, revision = self.inputs.checkpoint(key)
        return self._params({"name": name, "revision": revision}, "weights")

    def training(self, study: str, device: str, cell: str, repeat: str) -> Params:
        """A run's spec and code, its weights, and its attempt; its data are an input."""
        spec = self.plan.runs[study, device, cell, int(repeat)]
        params = self._measured(spec)
        params["attempt"] = self._attempts.of_run(spec, params["source"])
        params["winoground"] = " ".join(f"--winoground {f}" for f in self.inputs.winoground(spec))
        return params | self.inputs.weights(spec.settings.model)

    def _measured(self, spec: RunSpec) -> Params:
        """A run's spec and code."""
        loader, model = spec.settings.loader, spec.settings.model.name
        named = spec.kind, spec.launcher, model, loader.decode, library_of(loader)
        code = "inferred" if spec.task == "inference" else "measured"
        return self._params(_as_text(spec), code, *digests.plugins_of(*named))

    def storing(self, key: str) -> Params:
        """The settings of a store of decoded pictures, and its weights."""
        spec = self.inputs.store(key)
        params = self._params(msgspec.to_builtins(spec), "stored", digests.builder(spec.model.name))
        return params | self.inputs.weights(spec.model)

    def drawn(self) -> str:
        """The dataset of a self-test: one that is drawn here, so that it needs no network."""
        config = self.project.config
        datasets = config.datasets.items()
        drawn = (name for name, data in datasets if isinstance(data, workflow.Generated))
        return next(drawn, config.dataset)

    def testing(self, device: str) -> Params:
        """A device's registry entry, and the time of the call: a self-test is always a new one."""
        entry = msgspec.to_builtins(self.project.devices[device])
        return {"settings": entry, "asked_at": os.environ.get(variables.ASKED_AT, "")}

    def order(self, study: str, device: str, cell: str, repeat: str) -> int:
        """Priority of a training job: repeat 1 of all cells, then repeat 2, and so on."""
        return -1 - self._order[study, device, cell, int(repeat)]

    # Params of results

    def parsing(self, device: str) -> Params:
        """The entries of the device registry that a record needs."""
        facts = subset(results.DeviceFacts, self.project.devices[device])
        return self._params(facts, "parsed")

    def run_list(self, study: str, device: str) -> str:
        """A file that lists the folders of a study's runs on a device."""
        folders = [of_run(paths.RUN, spec) for spec in self._runs(study, device)]
        return self._keep(f"{study}.{device}.runs", "\n".join(folders))

    def collecting(self, study: str) -> Params:
        """The inputs that turn records into rows and cells, besides the records."""
        runs = {key: spec for key, spec in self.plan.runs.items() if key[0] == study}
        lacking = [cell for cell in self.plan.unsupported if cell.study == study]
        shared = [cell for cell in self.plan.shared if cell.study == study]
        plan = Plan(runs=runs, unsupported=lacking, shared=shared)
        return self._params(results.collect_settings(self._only(study), plan), "collected")

    def collect_arguments(self, study: str) -> str:
        """A file with the arguments of `collecting`, which can be too long for a command line."""
        settings = self.collecting(study)["settings"]
        text = f"--records-list\n{self.record_list(study)}\n--settings\n{settings}"
        return self._keep(f"{study}.collect", text)

    def record_list(self, study: str) -> str:
        """A file that lists the records of a study."""
        files = [of_run(paths.RECORD, spec) for spec in self.plan.of_study(study)]
        return self._keep(f"{study}.records", "\n".join(files))

    def claims(self, study: str) -> Params:
        """A study's claims and published numbers."""
        return self._params(results.claim_settings(self._only(study)), "claimed")

    def code_of(self, code: str) -> Params:
        """Only the code, of a job for which everything else is an input."""
        return self._params({}, code)

    # Params of the report

    def rendering(self, study: str, part: report.Part, name: str) -> Params:
        """The settings of a table or figure; its code is the program and the file of its kind."""
        kind = report.find_page(self.project, study, part, name).kind
        settings = report.page_settings(self.project, study, part, name)
        program = digests.plugin_file(f"feedrate.report.{part}s", kind)
        return self._params(settings, "page", program)

    def overview(self) -> Params:
        """The content of the first page besides results."""
        return self._params(report.overview_settings(self.project, self.plan), "overview")

    def _params(self, settings: Any, code: str, *programs: str) -> Params:
        """`settings` with the digest of a kind of job's code and of further `programs`."""
        key = (code, *programs)
        if key not in self._sources:
            entry = digests.CODE[code]
            entry = entry._replace(programs=entry.programs + programs)
            self._sources[key] = digests.source_digest(self._cache, entry)
        self._cache.save()  # digests of unchanged files, for the next plan
        return {"settings": msgspec.to_builtins(settings), "source": self._sources[key]}

    def _runs(self, study: str, device: str) -> list[RunSpec]:
        return [spec for spec in self.plan.of_study(study) if spec.device == device]

    def _only(self, study: str) -> Project:
        """The project as if this were its only study."""
        return msgspec.structs.replace(self.project, studies={study: self.project.studies[study]})

    def _keep(self, name: str, text: str) -> str:
        path = KEPT / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
        return str(path)


def _as_made(entry: workflow.Dataset | workflow.Examples) -> Params:
    """The settings that data are made from; `max_bad_share` reaches the job by the environment."""
    settings: Params = msgspec.to_builtins(entry)
    settings.pop("max_bad_share", None)
    return settings


def _as_text(spec: RunSpec) -> str:
    """A spec as JSON: a plan formats it three times, in a tenth of the time that a dict takes."""
    return msgspec.json.encode(spec).decode()
