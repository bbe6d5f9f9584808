"""What the report knows of a study besides its runs: its configuration and its planned runs, in one
JSON document that every job of the report reads."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec.structs import replace

from feedrate.config.plan import Plan, RunKey, Shared, Unsupported
from feedrate.config.project import Project
from feedrate.config.study import Published, Study
from feedrate.config.values import Level, Strict, about, convert, copy_fields
from feedrate.core import paths
from feedrate.core.files import write_text


class PlannedRun(Strict, kw_only=True):
    """A run that the report shows, whether it has been made or not."""

    device: str
    cell: str
    levels: dict[str, Level]
    repeat: int
    folder: Annotated[str, about("Its folder, as it is or will be, from the project's root.")]


class StudyPlan(Strict, kw_only=True):
    """One study of a project, as the jobs of the report need it."""

    project: Annotated[Project, about("With this study only, and the devices that it names.")]
    runs: Annotated[list[PlannedRun], about("In measuring order.")]
    unsupported: list[Unsupported] = []
    shared: list[Shared] = []
    data_report: Annotated[str, about("File with the numbers of the prepared data.")] = ""
    written_ns: Annotated[int, about("When its file was written, since 1970.")] = 0

    @property
    def name(self) -> str:
        """The study's name."""
        return next(iter(self.project.studies))

    @property
    def study(self) -> Study:
        """The study."""
        return self.project.studies[self.name]

    @property
    def published(self) -> list[Published]:
        """The published numbers of the study."""
        return self.project.published.get(self.name, [])

    @property
    def measured(self) -> list[str]:
        """The devices on which the study is measured."""
        return self.project.devices_of(self.name)


def study_plan(
    project: Project, study: str, plan: Plan, folders: Mapping[RunKey, str], data_report: str
) -> StudyPlan:
    """The part of a project and its plan that belongs to a study. `folders` has the folder of each
    run, `data_report` the file of the study's first dataset."""
    published, measured = project.published[study], project.devices_of(study)
    named = dict.fromkeys([*measured, *(row.device for row in published)])
    sheets = {project.studies[study].source.sheet, *(row.sheet for row in published)}
    own = replace(
        project,
        config=replace(project.config, studies=[study], devices=measured),
        devices={name: project.devices[name] for name in named if name in project.devices},
        studies={study: project.studies[study]},
        published={study: published},
        scores={study: project.scores.get(study, [])},
        accuracies={study: project.accuracies.get(study, [])},
        sheets={name: sheet for name, sheet in project.sheets.items() if name in sheets},
        measured={study: measured},
        sites={name: site for name, site in project.sites.items() if name in measured},
    )
    return StudyPlan(
        project=own,
        runs=[
            copy_fields(PlannedRun, spec, folder=folders[key])
            for key, spec in plan.runs.items()
            if spec.study == study and spec.device in measured
        ],
        unsupported=[cell for cell in plan.unsupported if cell.study == study],
        shared=[cell for cell in plan.shared if cell.study == study],
        data_report=data_report,
    )


def read_plan(path: Path) -> StudyPlan:
    """Read the plan of a study. Raises ConfigError."""
    return convert(msgspec.json.decode(path.read_bytes()), StudyPlan, str(path))


def write_plan(plan: StudyPlan) -> Path:
    """Write the plan of a study, unless the same is there: jobs whose input it is run again if it
    changed. Return the file."""
    file = Path(paths.STUDY_PLAN.format(study=plan.name))
    document = msgspec.json.decode(msgspec.json.encode(plan))
    try:
        present = msgspec.json.decode(file.read_bytes())
    except (OSError, ValueError):
        present = {}
    if present | {"written_ns": plan.written_ns} != document | {"written_ns": plan.written_ns}:
        # Snakemake ignores a newer file with the digest that it knows. Results of another plan may
        # have been made in between, without Snakemake: so no two files of one plan are equal.
        write_text(file, msgspec.json.encode(replace(plan, written_ns=time.time_ns())).decode())
    return file
