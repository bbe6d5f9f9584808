"""The workflow's graph as the rules ask for it: paths of targets and inputs, options of jobs."""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable
from itertools import count, product
from pathlib import Path
from typing import Any

import msgspec
import yaml

from feedrate.config.plan import Plan, make_plan, runnable, timeouts_min
from feedrate.config.project import Project
from feedrate.config.spec import RunSpec
from feedrate.config.values import cell_name
from feedrate.core import paths, plugins
from feedrate.core.errors import ExpectedError
from feedrate.core.files import digest_value
from feedrate.flow.data import Data, job
from feedrate.flow.folders import RunFolders, run_folder
from feedrate.flow.identity import (
    LENGTH,
    PACKAGE,
    DigestCache,
    identity,
    measured_code,
    plugin_file,
)
from feedrate.flow.resources import with_cached_signature
from feedrate.results.study_plan import StudyPlan, study_plan, write_plan

DIGESTS = Path(".snakemake/feedrate/digests.json")  # digests of unchanged files, for the next plan

Files = Callable[[Any], list[str] | str] | list[str] | str
"""A rule's input: files, or a function of wildcards that names them."""


class CodeChanged(ExpectedError):
    """The measured code, the settings or the data are not those that the workflow started with."""


class Graph:
    """The targets, inputs and options of all rules, for one configuration."""

    def __init__(self, project: Project, root: Path, plan: Plan | None = None) -> None:
        """`plan`: a part of the project's plan; None: all that can run here or has a result."""
        self.project, self.root = project, root
        self._digests = DigestCache(DIGESTS)
        self._environments = plugins.declared("feedrate.devices.kinds", "ENVIRONMENT")
        self._surroundings: dict[tuple[Any, ...], tuple[str, str]] = {}
        self._identities: dict[tuple[str, str, str, int], str] = {}
        self.plan = plan or make_plan(project)
        self.data = Data(project, root, self.plan, self._digests)
        self.folders = RunFolders(self.identity, self.smaller)
        if plan is None:
            self.plan = runnable(project, self.plan, self.folders.has_result)
        self._order = {key: -1 - number for number, key in enumerate(self.plan.runs)}
        self._timeouts_min = timeouts_min(project)

    # Identities

    def identity(self, spec: RunSpec) -> str:
        """The identity of a run: its spec, data, measured code and environment."""
        key = spec.study, spec.device, spec.cell, spec.repeat
        if key not in self._identities:
            # As short as it can be: a plan may have 10,000 runs.
            content = self._surroundings_of(spec)[0].encode()
            content += msgspec.json.encode(spec, order="sorted")
            self._identities[key] = hashlib.sha256(content).hexdigest()[:LENGTH]
        return self._identities[key]

    def _surroundings_of(self, spec: RunSpec) -> tuple[str, str]:
        """The digests of all that a run is made from besides its spec, and of its code alone."""
        model, loader, store = spec.settings.model, spec.settings.loader, self.data.store(spec)
        key = (
            spec.device, spec.task, spec.kind, spec.launcher, spec.dataset, spec.protocol.evaluate,
            model.name, model.checkpoint, loader.decode, loader.library, loader.form, *store,
        )  # fmt: skip
        if key not in self._surroundings:
            file = self.root / f"envs/{self._environments[spec.kind]}.yaml"
            # Without its comments; an unpacked archive has no such file.
            environment = yaml.safe_load(file.read_bytes()) if file.is_file() else None
            code = self._digests.of_code(measured_code(spec))
            sources = {
                "campaign": self.project.config.campaign,
                "data": self.data.prepared(spec.dataset),
                "code": code,
                "environment": environment and digest_value(environment),
                "weights": self.data.weights(model),
                "store": store,
                "winoground": self.data.examples(spec),
            }
            self._surroundings[key] = identity(sources), code
            self._digests.save()
        return self._surroundings[key]

    # Runs

    def wildcard_constraints(self) -> dict[str, str]:
        """The form of the wildcards in paths."""
        config = self.project.config

        def one_of(names: Iterable[str]) -> str:
            return "|".join(map(re.escape, names))

        return {
            "study": one_of(self.project.studies),
            "device": one_of(config.devices),
            "winoground": one_of(config.winoground_sets or ["none"]),
            "dataset": rf"({one_of(config.datasets)})(-\d+)?",  # generated-7680, with its rows
            "identity": r"[0-9a-f]{8}(-\d+)?",  # ab12cd34-2 is a run's second attempt
            "store": "[0-9a-f]{8}",
            "checkpoint": "[^/]+",
            "cell": "[^/]+",
            "repeat": r"\d+",
        }

    def outcomes(self, study: str, device: str, *, ended: bool = False) -> list[str]:
        """The outcomes of all runs of a study on a device. `ended`: those that exist, as a job's
        process sees them: it would not have started if a run were missing."""
        folder_of = self.folders.result if ended else self.folders.target
        specs = (spec for spec in self.plan.of_study(study) if spec.device == device)
        files = [f"{folder_of(spec)}/{paths.OUTCOME_NAME}" for spec in specs]
        return [file for file in files if not ended or Path(file).is_file()]

    def outcome(self, spec: RunSpec) -> str:
        """The outcome of a run: the target that asks for it."""
        return f"{self.folders.target(spec)}/{paths.OUTCOME_NAME}"

    def all_outcomes(self) -> list[str]:
        """The outcomes of all runs."""
        return [self.outcome(spec) for spec in self.plan.runs.values()]

    def runs_to_do(self, targets: Collection[str] = ()) -> list[RunSpec]:
        """The runs without a result. If all targets are studies, outcomes, data or self-tests: the
        runs of these studies, and those whose outcomes are targets."""
        specs = [spec for spec in self.plan.runs.values() if not self.folders.has_result(spec)]
        parts = (f"{paths.RUNS}/", f"{paths.DATASETS}/", paths.SELFTEST_TARGET)
        if targets and all(t in self.project.studies or t.startswith(parts) for t in targets):
            return [s for s in specs if s.study in targets or self.outcome(s) in targets]
        return specs

    def inputs(self, device: str) -> dict[str, Files]:
        """What training on a device reads. An input that none of its runs needs is left out, and
        one that all share is a constant: both make the plan of thousands of runs faster."""
        specs = [spec for spec in self.plan.runs.values() if spec.device == device]
        inputs: dict[str, Files] = {}
        makers: dict[str, Callable[[RunSpec], list[str]]] = {
            "data": lambda spec: [self.data.manifest(spec.dataset)],
            "weights": lambda spec: self.data.fetched_weights(spec.settings.model),
            "store": self.data.store,
            "winoground": self.data.examples,
        }
        for name, files_of in makers.items():
            files = [files_of(spec) for spec in specs]
            if any(other != files[0] for other in files):
                inputs[name] = with_cached_signature(
                    lambda wildcards, files_of=files_of: files_of(self._spec(device, wildcards))
                )
            elif files and files[0]:
                inputs[name] = files[0]
        return inputs

    def train(self, device: str, wildcards: Any) -> str:
        """The job of a run. Raises CodeChanged if the run would be another one than when the
        workflow started."""
        spec = self._spec(device, wildcards)
        if not wildcards.identity.startswith(self.identity(spec)):
            raise CodeChanged(
                "the measured code, the settings or the data have changed since the workflow was "
                "started; start it again"
            )
        config = self.project.config
        return job(
            "train",
            spec=spec,
            data=self.data.manifest(spec.dataset),
            out=run_folder(spec, wildcards.identity),
            source_digest=self._surroundings_of(spec)[1],
            timeout_min=self._timeouts_min[spec.study][device],
            smaller=[self.folders.target(run) for run in self.smaller(spec)],
            store=self.data.store(spec),
            winoground=self.data.examples(spec),
            push_to=config.push_to_hub,
            report_to=",".join(config.report_to),
            model_pattern=self.project.devices[device].model_pattern,
        )

    def selftest(self, device: str) -> str:
        """The job of a device's self-test."""
        config = self.project.config
        return job(
            "selftest_device",
            device=device,
            entry=self.project.devices[device],
            minutes=config.selftest_minutes,
            only=config.selftest_parts,
        )

    def order(self, device: str, wildcards: Any) -> int:
        """Priority of a training job: repeat 1 of all cells, then repeat 2, and so on."""
        return self._order[wildcards.study, device, wildcards.cell, int(wildcards.repeat)]

    def smaller(self, spec: RunSpec) -> list[RunSpec]:
        """The runs of cells that need no more memory: they differ only in factors of the study's
        `ladder`, and have no later level in any of them."""
        study = self.project.studies[spec.study]
        if not study.ladder:
            return []
        levels_up_to = []
        for name in study.ladder:
            levels = study.factors[name].levels
            levels_up_to.append(levels[: levels.index(spec.levels[name]) + 1])
        runs = []
        for steps in product(*levels_up_to):
            cell = cell_name(spec.levels | dict(zip(study.ladder, steps, strict=True)))
            for repeat in count(1):
                run = self.plan.runs.get((spec.study, spec.device, cell, repeat))
                if run is None or cell == spec.cell:
                    break
                runs.append(run)
        return runs

    def _spec(self, device: str, wildcards: Any) -> RunSpec:
        return self.plan.runs[wildcards.study, device, wildcards.cell, int(wildcards.repeat)]

    # Reporting

    def records(self, study: str) -> list[str]:
        """For each device on which a study has runs, their records."""
        devices = dict.fromkeys(spec.device for spec in self.plan.of_study(study))
        return [paths.RECORDS.format(study=study, device=device) for device in devices]

    def study_plans(self, *, ended: bool = False) -> list[StudyPlan]:
        """What the report knows of each study. `ended`: with the folders of the runs that have
        ended, else with those that this call makes."""
        folder_of = self.folders.result if ended else self.folders.target
        folders = {key: folder_of(spec) for key, spec in self.plan.runs.items()}
        return [
            study_plan(self.project, study, self.plan, folders, self.data.report(study))
            for study in self.project.studies
        ]

    def write_plans(self) -> None:
        """Write the plans of the studies that have changed. They are inputs of the cheap rules: a
        plan with a run to do is newer than their outputs, so that Snakemake makes the run."""
        to_do = {spec.study for spec in self.runs_to_do()}
        for plan in self.study_plans():
            file = write_plan(plan)
            if plan.name in to_do:
                file.touch()

    def code(self, *programs: str) -> list[str]:
        """The files of programs and of all modules that they import."""
        files = self._digests.sources(*programs)
        self._digests.save()
        return self._from_root(files)

    def page_inputs(self) -> dict[str, Files]:
        """The inputs of a study's tables and figures."""
        return {
            "results": list(paths.OF_A_STUDY[:-2]),  # without tables and figures
            "data": lambda wildcards: self.data.report(wildcards.study),
            "plan": paths.STUDY_PLAN,
            "code": self.page_code(),
            "templates": self.templates(),
        }

    def page_code(self) -> list[str]:
        """The code of the page, its tables and its figures."""
        kinds = [
            plugin_file(package, name)
            for package in ("feedrate.report.tables", "feedrate.report.figures")
            for name in plugins.names(package)
        ]
        return self.code("report/page.py", "report/drawing.py", *kinds)

    def templates(self) -> list[str]:
        """The templates of pages, with their style and script; they are beside the package."""
        folder = PACKAGE.parents[1] / "report"
        return self._from_root([*folder.glob("templates/*"), *folder.glob("static/*")])

    def _from_root(self, files: Iterable[Path]) -> list[str]:
        """Sorted paths, relative to the project's root where they are in it."""
        root = self.root
        return [str(f.relative_to(root) if f.is_relative_to(root) else f) for f in sorted(files)]
