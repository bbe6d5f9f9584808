"""The plan as the Snakefile asks for it: targets, params, and what makes a job run again.

Every params dict holds the settings that a job uses and the digest of its code, and nothing else:
the job runs again when, and only when, one of these or an input has changed.
"""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from feedrate import paths
from feedrate.config import digest
from feedrate.config.device import Device
from feedrate.config.plan import Plan, Project, make_plan
from feedrate.config.settings import ModelSettings
from feedrate.config.study import Figure, Table
from feedrate.config.workflow import Folder
from feedrate.data import watch
from feedrate.files import write_text
from feedrate.models.checkpoint import is_on_hub
from feedrate.report import settings as report
from feedrate.results import settings as results

KEPT = Path(".snakemake/feedrate")
"""What a plan keeps for the next one, and for jobs; never needed by a result."""

START_MIN = 20
"""Minutes that a scheduler allows a training job beyond its protocol's `timeout_min`."""

Key = tuple[str, str, str, int]
Params = dict[str, Any]


class PlanView:
    """Answers of plain strings, numbers, lists and dicts, so that Snakemake can compare params."""

    def __init__(self, project: Project, root: Path) -> None:
        self.project = project
        self._root = root
        self._cache = digest.DigestCache(KEPT / "digests.json")
        self._plan = make_plan(project)
        self._order = {key: number for number, key in enumerate(self._plan.runs)}
        self._minutes = {
            (spec.study, spec.device): math.ceil(spec.protocol.timeout_min) + START_MIN
            for spec in self._plan.runs.values()
        }
        self._checkpoints = {
            _checkpoint(model): (model.checkpoint, model.revision or "main")
            for model in (spec.settings.model for spec in self._plan.runs.values())
            if model.checkpoint and is_on_hub(model.checkpoint)
        }
        self._attempts: dict[Key, int] = {}
        self._sources: dict[str, str] = {}

    # Targets

    def devices(self) -> list[tuple[str, Device]]:
        """The devices that are trained on, with their registry entries."""
        return [(name, self.project.devices[name]) for name in self.project.config.devices]

    def records(self, study: str) -> list[str]:
        """The record files of a study, in measuring order."""
        return [
            paths.RECORD.format(
                study=spec.study, device=spec.device, cell=spec.cell, repeat=spec.repeat
            )
            for spec in self._plan.of_study(study)
        ]

    def pages(self, study: str) -> list[str]:
        """All tables and figures of a study."""
        entry = self.project.studies[study]
        return [paths.TABLE.format(study=study, table=t.name) for t in entry.tables] + [
            paths.FIGURE.format(study=study, figure=f.name) for f in entry.figures
        ]

    def captions(self, part: str) -> list[tuple[str, str]]:
        """Captions of the `tables` or `figures` of all studies, each with a regular expression of
        the names that bear it."""
        names: dict[str, dict[str, None]] = {}
        for study in self.project.studies.values():
            for page in getattr(study, part):
                names.setdefault(page.caption, {})[re.escape(page.name)] = None
        return [(caption, "|".join(found)) for caption, found in names.items()]

    def inputs_of(self, study: str, page: Table | Figure) -> list[str]:
        """The files that a table or figure is made from."""
        return report.inputs_of(page.kind, study, self.project.config.dataset)

    def table(self, study: str, name: str) -> Table:
        """A table of a study, by name."""
        return next(t for t in self.project.studies[study].tables if t.name == name)

    def figure(self, study: str, name: str) -> Figure:
        """A figure of a study, by name."""
        return next(f for f in self.project.studies[study].figures if f.name == name)

    # Params of data and training

    def fetching(self, name: str) -> Params:
        """A dataset's settings, and for a folder the state of its files."""
        entry = self.project.config.datasets[name]
        state = ""
        if isinstance(entry, Folder):
            state = watch.folder_state(self._root / entry.path, self._cache)
            self._cache.save()
        return {**self._params(msgspec.to_builtins(entry), "fetched"), "state": state}

    def preparing(self, name: str) -> Params:
        """A dataset's settings, and which fetched files were edited since."""
        edited = watch.edited(Path(paths.RAW_INDEX.format(dataset=name)), self._cache)
        self._cache.save()
        settings = msgspec.to_builtins(self.project.config.datasets[name])
        return {**self._params(settings, "prepared"), "edited": edited}

    def fetching_checkpoint(self, key: str) -> Params:
        """A hub checkpoint's name and revision."""
        name, revision = self._checkpoints[key]
        return self._params({"name": name, "revision": revision}, "weights")

    def checkpoints(self, device: str) -> Callable[[Any], list[str]] | list[str]:
        """What was fetched of the hub checkpoints that runs on a device start from, as an input.

        No function where there is none: thousands of runs plan faster so.
        """

        def checkpoint(wildcards: Any) -> list[str]:
            key = (wildcards.study, device, wildcards.cell, int(wildcards.repeat))
            name = _checkpoint(self._plan.runs[key].settings.model)
            return [paths.CHECKPOINT.format(checkpoint=name)] if name in self._checkpoints else []

        return checkpoint if self._checkpoints else []

    def training(self, study: str, device: str, cell: str, repeat: str) -> Params:
        """All that makes a run be done again, but its data, which is an input."""
        key = (study, device, cell, int(repeat))
        spec = msgspec.to_builtins(self._plan.runs[key])
        return {**self._params(spec, "measured"), "attempt": self._attempt(key)}

    def order(self, study: str, device: str, cell: str, repeat: str) -> int:
        """Priority of a training job: repeat 1 of all cells goes before any repeat 2."""
        return -1 - self._order[study, device, cell, int(repeat)]

    def job_resources(self, device: str) -> dict[str, Any]:
        """What a training job on a device asks a cluster for; a change of it reruns nothing.

        The time limit is what the protocol allows and a start, and after a fault twice that.
        """
        entry = self.project.devices[device]
        asked = {
            "tries": lambda _, attempt: attempt,
            "runtime": lambda wc, attempt: self._minutes[wc.study, device] * min(attempt, 2),
            "gres": entry.job.gres,
            "mem_mb": entry.job.memory_gib and int(entry.job.memory_gib * 1024),
            "constraint": entry.job.constraint,
        }
        if entry.nodes > 1:
            asked |= {"nodes": entry.nodes, "tasks": entry.nodes, "mpi": "srun"}
            # Else the executor asks for --ntasks-per-gpu=<tasks>, which no node can satisfy.
            asked["tasks_per_gpu"] = 0
        return {name: value for name, value in asked.items() if value is not None}

    # Params of results

    def parsing(self, device: str) -> Params:
        """What a record needs of the device registry."""
        return self._params(results.parse_settings(self.project.devices[device]), "parsed")

    def collecting(self, study: str) -> Params:
        """What turns records into rows and cells, beside the records."""
        runs = {key: spec for key, spec in self._plan.runs.items() if key[0] == study}
        lacking = [cell for cell in self._plan.unsupported if cell.study == study]
        plan = Plan(runs=runs, unsupported=lacking)
        return self._params(results.collect_settings(self._only(study), plan), "collected")

    def collect_arguments(self, study: str) -> str:
        """A file with the arguments that are longer than a command line may be."""
        settings = self.collecting(study)["settings"]
        records = self._keep(f"{study}.records", "\n".join(self.records(study)))
        text = f"--records-list\n{records}\n--settings\n{settings}"
        return self._keep(f"{study}.collect", text)

    def claims(self, study: str) -> Params:
        """A study's claims and published numbers."""
        return self._params(results.claim_settings(self._only(study)), "claimed")

    def fit(self, study: str) -> Params:
        """A study's published numbers, for the loader model."""
        return self._params(results.fit_settings(self._only(study)), "fitted")

    def merging(self) -> Params:
        """Only the code: all that is merged are inputs."""
        return self._params({}, "merged")

    # Params of the report

    def tabulating(self, study: str, table: str) -> Params:
        """What a table shows beside results."""
        return self._params(report.table_settings(self.project, study, table), "table")

    def plotting(self, study: str, figure: str) -> Params:
        """What a figure shows beside results."""
        return self._params(report.figure_settings(self.project, study, figure), "figure")

    def overview(self) -> Params:
        """What the first page shows beside results."""
        return self._params(report.overview_settings(self.project, self._plan), "overview")

    def _params(self, settings: dict[str, Any], code: str) -> Params:
        if code not in self._sources:
            self._sources[code] = digest.source_digest(self._cache, digest.CODE[code])
            self._cache.save()
        return {"settings": settings, "source": self._sources[code]}

    def _attempt(self, key: Key) -> int:
        """1 at first; a failed run has its next number, which is a changed param: tried again.

        So is a run beside which another training job was seen. Out of memory is a result and is
        not tried again. The number is taken once per plan, so
        that what a job leaves behind does not change the plan that it belongs to.
        """
        if key not in self._attempts:
            study, device, cell, repeat = key
            path = paths.OUTCOME.format(study=study, device=device, cell=cell, repeat=repeat)
            self._attempts[key] = _next_attempt(path)
        return self._attempts[key]

    def _only(self, study: str) -> Project:
        """The project as if this were its only study."""
        return msgspec.structs.replace(self.project, studies={study: self.project.studies[study]})

    def _keep(self, name: str, text: str) -> str:
        path = KEPT / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
        return str(path)


def _checkpoint(model: ModelSettings) -> str:
    return paths.checkpoint_key(model.checkpoint or "", model.revision)


def _next_attempt(outcome: str) -> int:
    try:
        with open(outcome, encoding="utf-8") as stream:  # noqa: PTH123 (10,000 of them at a plan)
            last = json.load(stream)
        disturbed = bool((last.get("machine_before") or {}).get("other_training_jobs"))
        return int(last["attempt"]) + (last["status"] == "failed" or disturbed)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 1
