"""Makes all results of run folders again, by the jobs of the workflow without Snakemake. They need
no device, data or network."""

import contextlib
import io
import shutil
from collections.abc import Container, Iterable, Iterator, Mapping
from operator import attrgetter
from pathlib import Path

from msgspec.structs import replace

from feedrate.cli import jobs
from feedrate.config.plan import CellWithoutRuns, Plan, Unsupported, make_plan
from feedrate.config.project import Project, study_names
from feedrate.config.spec import RunSpec
from feedrate.config.values import subset
from feedrate.core import paths
from feedrate.core.errors import ExpectedError
from feedrate.flow.view import PlanView
from feedrate.report.params import Part
from feedrate.report.text import counted
from feedrate.results.columns import RUNS
from feedrate.results.files import read_csv
from feedrate.results.record import Record, read_record

DERIVED = (
    *(f"**/{paths.RECORD_NAME}", "*.csv", "*/*.csv", "*.parquet", "*/*.parquet"),
    *("*/tables/*.html", "*/figures/*.svg", "overview.html"),
)
"""The files in the folder of results that are made again."""
CAPTIONS = Path("report/captions")
PAGES: dict[Part, str] = {"table": paths.TABLE, "figure": paths.FIGURE}
MERGED = {
    "runs": paths.RESULTS_CSV,
    "cells": paths.CELLS_CSV,
    "claims": paths.CLAIMS_CSV,
    "fit": paths.FIT_CSV,
}
"""The files that `merge-results` merges, by its options."""
Key = tuple[str, str, str, int]
"""Study, device, cell and repeat of a run."""
_key = attrgetter("study", "device", "cell")


def measured(project: Project) -> tuple[Project, Plan]:
    """The part of a project and of its plan that the working directory has records of. Raises
    ExpectedError if there is none."""
    plan = make_plan(project)
    has = {key: (paths.run_dir(*key) / paths.RECORD_NAME).is_file() for key in plan.runs}
    runs = {key: spec for key, spec in plan.runs.items() if has[key]}
    if not runs:
        none = f"there is no record of a planned run in {paths.RESULTS}/"
        raise ExpectedError("; it has records of ".join([none, *unplanned(plan)]))
    if outside := [cell for _, _, cell, _ in runs if "/" in cell]:
        raise ExpectedError(f"cell {outside[0]!r}: not allowed; no folder can have this name")
    known = {key[:3] for key in runs}
    studies = {n: s for n, s in project.studies.items() if any(key[0] == n for key in runs)}
    config = replace(project.config, studies=list(studies))
    lacking = [cell for cell in plan.unsupported if cell.study in studies]
    lacking += (cell for cell in _without_library(plan, studies) if _key(cell) not in known)
    shared = [cell for cell in plan.shared if (cell.study, cell.device, cell.measured_as) in known]
    kept = replace(project, config=config, studies=studies)
    return kept, Plan(runs=runs, unsupported=lacking, shared=shared)


def records_of(folder: Path, studies: Container[str]) -> dict[Key, Record]:
    """The records of all runs of these studies in a project's folder."""
    found: dict[Key, Record] = {}
    for file in sorted((folder / paths.RESULTS).glob(f"*/*/*/rep*/{paths.RECORD_NAME}")):
        study, device, cell, repeat = file.parts[-5:-1]
        if study in studies and (number := repeat.removeprefix("rep")).isdecimal():
            found[study, device, cell, int(number)] = read_record(file)
    return found


def leftovers(records: Mapping[Key, Record], plan: Plan) -> list[Key]:
    """The runs with other settings than their cell, which has those of the plan if any of its runs
    was made with them, else those of its lowest repeat. Seeds may differ."""
    planned = {key[:3]: spec.of_cell for key, spec in plan.runs.items()}
    specs = {key: record.spec.of_cell for key, record in sorted(records.items()) if record.spec}
    cells: dict[tuple[str, str, str], list[RunSpec]] = {}
    for key, spec in specs.items():
        cells.setdefault(key[:3], []).append(spec)
    own = {key: planned[key] if planned.get(key) in one else one[0] for key, one in cells.items()}
    return [key for key, spec in specs.items() if spec != own[key[:3]]]


def _without_library(plan: Plan, studies: Iterable[str]) -> Iterator[Unsupported]:
    """The cells for which the results say that a loader library was not installed where they were
    made: no other file says so, and what is installed here does not matter."""
    cells: list[RunSpec | CellWithoutRuns] = [*plan.shared, *plan.runs.values()]
    planned = {_key(cell): cell for cell in cells}
    files = (Path(paths.RESULTS_CSV.format(study=study)) for study in studies)
    for row in (row for file in files if file.is_file() for row in read_csv(file, RUNS)):
        cell = planned.get((row["study"], row["device"], row["cell"]))
        if cell and row["status"] == "unsupported":
            yield subset(Unsupported, cell, lacks="", install=row["cause"])


def refuse_other_settings(plan: Plan) -> None:
    """Raise ExpectedError if a run of the plan was made with other settings than the plan's."""
    found = {key: read_record(paths.run_dir(*key) / paths.RECORD_NAME).spec for key in plan.runs}
    other = [key for key, spec in found.items() if spec and spec != plan.runs[key]]
    if other:
        raise ExpectedError(
            f"{counted(len(other), 'run')} of {' and '.join(sorted({key[0] for key in other}))} "
            f"{'was' if len(other) == 1 else 'were'} made with other settings than this "
            "configuration's: run again, or archive with the configuration that made "
            f"{'it' if len(other) == 1 else 'them'}"
        )


def unplanned(plan: Plan) -> Iterator[str]:
    """A sentence for each study that has records of runs which are not in the plan."""
    planned = {paths.run_dir(*key) / paths.RECORD_NAME for key in plan.runs}
    for study in study_names(Path()):
        found = set(Path(paths.STUDY.format(study=study)).glob(f"*/*/rep*/{paths.RECORD_NAME}"))
        if count := len(found - planned):
            yield f"{counted(count, 'run')} of {study} that this configuration does not plan"


def derived(folder: Path) -> list[Path]:
    """The files of results in a folder that are made again, in order."""
    results = folder / paths.RESULTS
    return sorted({path for pattern in DERIVED for path in results.glob(pattern) if path.is_file()})


def make_again(project: Project, folder: Path) -> None:
    """Make all that is derived from the runs in another `folder` again, with the captions of this
    one. Raises ExpectedError if that is not possible."""
    root = Path.cwd()
    with contextlib.chdir(folder):
        project, plan = measured(project)
        for file in derived(folder):
            file.unlink()
        redraw(PlanView(project, folder, plan), root)


def redraw(view: PlanView, root: Path, *, parse: bool = True) -> None:
    """Make all results in the working directory again from the runs of the view's plan, with the
    captions of the project `root`. Without `parse`, the records are taken as they are. Raises
    ExpectedError if the results or a page cannot be made."""
    shutil.copytree(root / CAPTIONS, CAPTIONS, dirs_exist_ok=True)
    make_results(view, parse=parse)
    for (study, part, name), inputs in _pages(view):
        out = PAGES[part].format(study=study, **{part: name})
        settings = repr(view.rendering(study, part, name)["settings"])
        try:
            if missing := [file for file in inputs if not Path(file).is_file()]:
                raise ExpectedError(f"there is no {missing[0]}")
            _run("render-page", "--settings", settings, "--out", out, "--inputs", *inputs)
        except ExpectedError as error:
            raise ExpectedError(f"{out} cannot be made: {error}") from None
    studies = list(view.project.studies)
    files = [paths.of_all_studies(path) for path in MERGED.values()]
    files += [paths.QUALITY_CSV.format(study=study) for study in studies]
    files += [page for study in studies for page in view.pages(study)]
    files.append(paths.DATA_REPORT.format(dataset=view.dataset(studies[0])))
    files += map(str, CAPTIONS.rglob("*.rst"))
    given = ("--settings", repr(view.overview()["settings"]))
    inputs = [file for file in files if Path(file).is_file()]
    _run("write-overview", *given, "--out", paths.OVERVIEW, "--inputs", *inputs)


def make_results(view: PlanView, *, parse: bool = True) -> None:
    """Make the records, unless they are taken as they are, and the result files again."""
    for study in view.project.studies:
        for file in view.parsed(study) if parse else ():
            device = Path(file).parent.name
            parsing = view.parsing(device)
            given = ("--runs-list", view.run_list(study, device), "--parser", parsing["source"])
            _run("parse-logs", *given, "--device", repr(parsing["settings"]), "--out", file)
        runs, cells, claims, fit = [path.format(study=study) for path in MERGED.values()]
        parquet = paths.RESULTS_PARQUET.format(study=study)
        out = ("--out-csv", runs, "--out-parquet", parquet, "--cells", cells)
        _run("collect-results", f"@{view.collect_arguments(study)}", *out)
        judged, fitted = repr(view.claims(study)["settings"]), repr(view.fit(study)["settings"])
        _run("judge-claims", "--results", runs, "--settings", judged, "--out", claims)
        _run("fit-loader-model", "--cells", cells, "--settings", fitted, "--out", fit)
        kept = view.scores(study)
        if kept and all(Path(file).is_file() for file in kept):
            scores = paths.QUALITY_CSV.format(study=study)
            _run("collect-quality", f"@{view.quality_arguments(study)}", "--out", scores)
    merged = [
        word
        for option, path in MERGED.items()
        for word in (f"--{option}", *(path.format(study=study) for study in view.project.studies))
    ]
    _run("merge-results", *merged, "--out", paths.RESULTS)


def _pages(view: PlanView) -> Iterator[tuple[tuple[str, Part, str], list[str]]]:
    """Study, part and name of each table and figure, and the files that it is made from."""
    for study, entry in view.project.studies.items():
        for part in PAGES:
            for page in getattr(entry, f"{part}s"):
                yield (study, part, page.name), view.inputs_of(study, part, page.name)


def _run(job: str, *words: str) -> None:
    """Run a job without its output. Raises ExpectedError with its sentence if it fails."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        code = jobs.run(job, words)
    if code:
        raise ExpectedError(told.getvalue().strip().splitlines()[-1].rstrip("."))
