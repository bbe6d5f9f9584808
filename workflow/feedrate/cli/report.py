"""`python -m feedrate report`: records, results, tables, figures and the page from run folders,
without Snakemake and without measuring; those of several sites become one report."""

import argparse
import contextlib
import io
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from feedrate.cli import jobs
from feedrate.config.plan import Plan, make_plan
from feedrate.config.project import Project, load_project, study_names
from feedrate.config.values import load
from feedrate.core import paths
from feedrate.core.errors import ExpectedError, UsageError
from feedrate.core.files import digest_file, replaced_folder
from feedrate.flow.view import PlanView
from feedrate.report.params import Part
from feedrate.results.assemble import read_spec
from feedrate.results.record import read_record, write_record

PAGES: dict[Part, str] = {"table": paths.TABLE, "figure": paths.FIGURE}
MERGED = {"runs": paths.RESULTS_CSV, "cells": paths.CELLS_CSV, "claims": paths.CLAIMS_CSV}
"""The files that `merge-results` merges, by its options."""
Key = tuple[str, str, str, int]
"""Study, device, cell and repeat of a run."""
Origins = Mapping[str, tuple[str, str]]
"""By the name of a device in the report: its name in its site, and the site."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    about = "clones or unpacked archives, with the site's name; default: this folder"
    parser.add_argument("sites", metavar="[SITE=]FOLDER", nargs="*", help=about)
    about = "a new folder for the report of several sites"
    parser.add_argument("--out", metavar="FOLDER", type=Path, help=about)


def report(options: argparse.Namespace) -> int:
    """Make the report in its folder, or of several sites in a new one. Return 1 if a file differs
    from its checksum."""
    if (len(options.sites) > 1) != (options.out is not None):
        raise UsageError("--out is for several sites, and they need it")
    if options.out and options.out.exists():
        raise UsageError(f"--out {options.out}: not allowed; it exists")
    root, sites = Path.cwd(), dict(map(_site, options.sites or ["."]))
    if len(sites) < len(options.sites):
        raise UsageError("two sites have one name: name them, as in SITE=FOLDER")
    if wrong := [name for name in sites if options.out and not re.fullmatch(r"[\w.+-]+", name)]:
        raise UsageError(f"{wrong[0]!r} is not allowed as a site's name: it is in names of folders")
    first, changed = next(iter(sites.values())), False
    for folder in sites.values():
        for name in changed_files(folder):
            changed = True
            print(f"{folder / name} is not the file of {paths.CHECKSUMS}")
    runs, origins = _runs(sites, study_names(first))
    project, plan = _planned(first, runs, origins)
    if options.out:
        with replaced_folder(options.out) as folder:
            for key in plan.runs:
                shutil.copytree(runs[key], folder / paths.run_dir(*key))
            for file in first.glob(paths.DATA_REPORT.format(dataset="*")):
                (folder / file.relative_to(first)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, folder / file.relative_to(first))
            make_report(PlanView(project, folder.resolve(), plan), folder, root)
    else:
        make_report(PlanView(project, first, plan), first, root)
    print(f"The report: {(options.out or first) / paths.OVERVIEW}")
    return 1 if changed else 0


def _site(word: str) -> tuple[str, Path]:
    """The name and the folder of a site, from a word of the command line."""
    name, _, place = word.rpartition("=")
    folder = Path(place).resolve()
    if not (folder / "config/config.yaml").is_file():
        raise UsageError(f"{place}: neither a clone nor an unpacked archive")
    return name or folder.name, folder


def changed_files(folder: Path) -> Iterator[str]:
    """The files that are missing or differ from the checksums of a folder, if it has any."""
    sums = folder / paths.CHECKSUMS
    for line in sums.read_text(encoding="utf-8").splitlines() if sums.is_file() else ():
        digest, _, name = line.partition("  ")
        if not (folder / name).is_file() or digest_file(folder / name) != digest:
            yield name


def _runs(sites: Mapping[str, Path], studies: list[str]) -> tuple[dict[Key, Path], Origins]:
    """The folders of all runs that have ended. The first site that has a device keeps its name;
    others add their own."""
    runs: dict[Key, Path] = {}
    origins: dict[str, tuple[str, str]] = {}
    for site, folder in sites.items():
        names: dict[str, str] = {}
        for outcome in sorted((folder / paths.RESULTS).glob("*/*/*/rep[0-9]*/outcome.json")):
            study, device, cell, repeat = outcome.parts[-5:-1]
            if study in studies:
                if device not in names:
                    names[device] = f"{device}-{site}" if device in origins else device
                    if names[device] in origins:
                        raise UsageError(f"two devices are called {names[device]}: rename a site")
                    origins[names[device]] = device, site
                runs[study, names[device], cell, int(repeat[3:])] = outcome.parent
        if not names:
            raise ExpectedError(f"{folder}: there is no run of a known study in {paths.RESULTS}/")
    return runs, origins


def _planned(first: Path, runs: Mapping[Key, Path], origins: Origins) -> tuple[Project, Plan]:
    """The project of the first site, with the studies and devices that have runs; and these runs,
    without those of cells that the project does not plan."""
    several = len({site for _, site in origins.values()}) > 1
    chosen = {"studies": list(dict.fromkeys(key[0] for key in runs))}
    chosen["devices"] = list(dict.fromkeys(device for device, _ in origins.values()))
    with contextlib.chdir(first):
        project = load_project(first, load(Path("config/config.yaml"), dict[str, Any]) | chosen)
    devices = dict(project.devices)
    for name, (own, site) in origins.items():
        family = devices[own].variant_of or (own if name != own else None)
        label = f"{devices[own].label} ({site})" if several else devices[own].label
        devices[name] = replace(project.devices[own], label=label, variant_of=family)
    measured: dict[str, list[str]] = {}
    for study, device in dict.fromkeys(key[:2] for key in runs):
        measured.setdefault(study, []).append(device)
    project = replace(
        project,
        config=replace(project.config, devices=list(origins)),
        devices=devices,
        measured=measured,
        sites={name: site for name, (_, site) in origins.items()} if several else {},
    )
    plan = make_plan(project)
    planned = {key[:3]: spec.of_cell for key, spec in plan.runs.items()}
    specs = {
        key: replace(read_spec(folder / paths.SPEC_NAME), device=key[1])
        for key, folder in sorted(runs.items())
    }
    # A cell has the settings of the plan, if a run of it has, else those of its first repeat.
    settings = {key[:3]: spec.of_cell for key, spec in reversed(specs.items())}
    settings |= {k[:3]: s.of_cell for k, s in specs.items() if s.of_cell == planned.get(k[:3])}
    of_plan = {k: s for k, s in specs.items() if k[:3] in planned and s.of_cell == settings[k[:3]]}
    for key in specs.keys() - of_plan.keys():
        print(f"left out: {runs[key]}: this configuration does not plan it")
    unsupported = [c for c in plan.unsupported if c.device in measured.get(c.study, ())]
    cells = {key[:3] for key in of_plan}
    shared = [c for c in plan.shared if (c.study, c.device, c.measured_as) in cells]
    return project, Plan(runs=of_plan, unsupported=unsupported, shared=shared)


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
        first = next(iter(view.project.studies))
        files.append(paths.DATA_REPORT.format(dataset=view.dataset(first)))
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
