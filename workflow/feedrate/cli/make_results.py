"""All that follows from run folders, made by the jobs of the workflow without Snakemake."""

import contextlib
import io
from pathlib import Path

from msgspec.structs import replace

from feedrate.cli import jobs
from feedrate.core import paths
from feedrate.core.errors import ExpectedError
from feedrate.flow.view import PlanView
from feedrate.report.params import Part
from feedrate.results.record import read_record, write_record

PAGES: dict[Part, str] = {"table": paths.TABLE, "figure": paths.FIGURE}
MERGED = {"runs": paths.RESULTS_CSV, "cells": paths.CELLS_CSV, "claims": paths.CLAIMS_CSV}
"""The files that `merge-results` merges, by its options."""


def make_report(view: PlanView, folder: Path, root: Path) -> None:
    """Make all that follows from the runs in a folder: results, pages, and the first page with the
    captions of the project `root`. Raises ExpectedError if a job fails."""
    with contextlib.chdir(folder):
        make_results(view)
        files = [paths.of_all_studies(path) for path in MERGED.values()]
        for study, entry in view.project.studies.items():
            for part, pattern in PAGES.items():
                for page in getattr(entry, f"{part}s"):
                    out = pattern.format(study=study, **{part: page.name})
                    settings = repr(view.rendering(study, part, page.name)["settings"])
                    inputs = view.inputs_of(study, part, page.name)
                    _run("render-page", "--settings", settings, "--out", out, "--inputs", *inputs)
            files += view.pages(study)
        files.append(
            paths.DATA_REPORT.format(dataset=view.dataset(next(iter(view.project.studies))))
        )
        files += map(str, (root / "report/captions").glob("*.rst"))
        inputs = [file for file in files if Path(file).is_file()]
        settings = repr(view.overview()["settings"])
        _run("write-overview", "--settings", settings, "--out", paths.OVERVIEW, "--inputs", *inputs)


def make_results(view: PlanView) -> None:
    """Make the records and the result files in the working directory."""
    for study in view.project.studies:
        for file in view.parsed(study):
            device = Path(file).parent.name
            parsing = view.parsing(device)
            words = ("--runs-list", view.run_list(study, device), "--parser", parsing["source"])
            _run("parse-logs", *words, "--device", repr(parsing["settings"]), "--out", file)
        for key in view.plan.runs if view.project.sites else ():
            record = read_record(paths.run_dir(*key) / paths.RECORD_NAME)
            write_record(paths.run_dir(*key) / paths.RECORD_NAME, replace(record, device=key[1]))
        runs, cells, claims = [path.format(study=study) for path in MERGED.values()]
        parquet = paths.RESULTS_PARQUET.format(study=study)
        out = ("--out-csv", runs, "--out-parquet", parquet, "--cells", cells)
        _run("collect-results", f"@{view.collect_arguments(study)}", *out)
        settings = repr(view.claims(study)["settings"])
        _run("judge-claims", "--results", runs, "--settings", settings, "--out", claims)
    files = []
    for option, path in MERGED.items():
        files += [f"--{option}", *(path.format(study=study) for study in view.project.studies)]
    _run("merge-results", *files, "--out", paths.RESULTS)


def _run(job: str, *words: str) -> None:
    """Run a job without its output. Raises ExpectedError with its sentence if it fails."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = jobs.run(job, words)
    if code:
        raise ExpectedError(output.getvalue().strip().splitlines()[-1].rstrip("."))
