"""`python -m feedrate report`: records, results, tables, figures and the page from run folders,
without Snakemake and without measuring; those of several sites become one report."""

import argparse
import contextlib
import json
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from feedrate.cli.snakemake import add_choices, load_graph
from feedrate.config.plan import Plan, RunKey, make_plan
from feedrate.config.project import Project, load_project, study_names
from feedrate.config.spec import RunSpec
from feedrate.config.values import load
from feedrate.core import paths
from feedrate.core.errors import ExpectedError, UsageError
from feedrate.core.files import digest_file, replaced_folder
from feedrate.report.page import plot_figures, tabulate_results, write_report
from feedrate.results.assemble import parse_logs, read_document
from feedrate.results.checks import confirm_results
from feedrate.results.claims import check_claims
from feedrate.results.collect import collect_results
from feedrate.results.comparison import read_runs
from feedrate.results.study_plan import StudyPlan, study_plan, write_plan

Origins = Mapping[str, tuple[str, str]]
"""By the name of a device in the report: its name in its site, and the site."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    text = "unpacked archives or clones, with the site's name; default: the runs of this folder"
    parser.add_argument("sites", metavar="[SITE=]FOLDER", nargs="*", help=text)
    text = "a new folder for the report of several sites"
    parser.add_argument("--out", metavar="FOLDER", type=Path, help=text)
    add_choices(parser)


def report(options: argparse.Namespace) -> int:
    """Make the report of this folder, of another one, or of several sites in a new one. Return 1 if
    a file differs from its checksum, or a run did not end well."""
    if (len(options.sites) > 1) != (options.out is not None):
        raise UsageError("several sites need --out FOLDER, and one site does not take it")
    if options.sites:
        return _report_of_sites(options)
    plans = load_graph(options).study_plans(ended=True)
    make_report(plans)
    results = [Path(paths.RESULTS_CSV.format(study=plan.name)) for plan in plans]
    confirm_results(results, Path(paths.CONFIRMED))
    return 0


def make_report(plans: Sequence[StudyPlan]) -> None:
    """Make all that follows from the runs in the working directory: results and the page."""
    files = []
    for plan in plans:
        file = write_plan(plan)
        results = Path(paths.STUDY.format(study=plan.name))
        for device in dict.fromkeys(run.device for run in plan.runs):
            parse_logs(plan=file, device=device, results=results)
        for stage in (collect_results, check_claims, tabulate_results, plot_figures):
            stage(plan=file, results=results)
        files.append(file)
    write_report(plans=files, results=Path(paths.RESULTS), page=Path(paths.PAGE))


def _report_of_sites(options: argparse.Namespace) -> int:
    if options.out and options.out.exists():
        raise UsageError(f"--out {options.out}: not allowed; it exists")
    sites: dict[str, Path] = {}
    for word in options.sites:
        name, _, place = word.rpartition("=")
        folder = Path(place).resolve()
        if not (folder / "config/config.yaml").is_file():
            raise UsageError(f"{place}: neither a clone nor an unpacked archive")
        sites[name or folder.name] = folder
    if len(sites) < len(options.sites):
        raise UsageError("two sites have the same name; write SITE=FOLDER for each")
    for name in sites:
        if options.out and not re.fullmatch(r"[\w.+-]+", name):
            raise UsageError(f"site {name!r}: not allowed; use letters, digits and _ . + -")
    has_changes = False
    for site in sites.values():
        checksums = site / paths.CHECKSUMS
        for line in checksums.read_text("utf-8").splitlines() if checksums.is_file() else ():
            digest, _, name = line.partition("  ")
            if not (site / name).is_file() or digest_file(site / name) != digest:
                has_changes = True
                print(f"{site / name} differs from its checksum in {paths.CHECKSUMS}")
    first = next(iter(sites.values()))
    ended, origins = _runs(sites, study_names(first))
    project = _project(first, ended, origins)
    plan, runs = _planned(project, ended)
    folders = {key: "/".join((paths.RUNS, *key[:3], runs[key].name)) for key in plan.runs}
    data_reports = {
        study: data_report(first, [runs[key] for key in plan.runs if key[0] == study])
        for study in project.studies
    }
    plans = [
        study_plan(project, study, plan, folders, report) for study, report in data_reports.items()
    ]
    if options.out:
        with replaced_folder(options.out) as folder:
            for key, name in folders.items():
                shutil.copytree(runs[key], folder / name)
            for name in set(data_reports.values()) - {""}:
                (folder / name).parent.mkdir(parents=True)
                shutil.copy(first / name, folder / name)
            with contextlib.chdir(folder):
                make_report(plans)
    else:
        with contextlib.chdir(first):
            make_report(plans)
    print(f"The report: {(options.out or first) / paths.PAGE}")
    return int(has_changes)


def data_report(site: Path, runs: Sequence[Path]) -> str:
    """The file about the data that the first of these runs read, from the site's root; empty if the
    site has none. The command in a run's outcome names its data."""
    for run in runs:
        words = shlex.split(json.loads((run / paths.OUTCOME_NAME).read_bytes())["command"])
        if "--data" in words:
            data = Path(words[words.index("--data") + 1])
            report = data.with_name(Path(paths.DATA_REPORT).name)
            if (site / report).is_file():
                return str(report)
    return ""


def _runs(
    sites: Mapping[str, Path], studies: list[str]
) -> tuple[dict[RunKey, list[Path]], Origins]:
    """The folders of all runs that have ended, of each the newest first. The first site that has a
    device keeps its name; others add their own."""
    runs: dict[RunKey, list[Path]] = {}
    origins: dict[str, tuple[str, str]] = {}
    for site, folder in sites.items():
        ended = [run for run in read_runs(folder / paths.RUNS) if run["study"] in studies]
        if not ended:
            raise ExpectedError(f"{folder}: there is no run of a known study in {paths.RUNS}/")
        names: dict[str, str] = {}
        for device in sorted({run["device"] for run in ended}):
            name = f"{device}-{site}" if device in origins else device
            if name in origins:
                raise UsageError(f"two devices are called {name}: rename a site")
            names[device] = name
        origins |= {name: (device, site) for device, name in names.items()}
        for run in ended:
            key = run["study"], names[run["device"]], run["cell"], run["repeat"]
            runs.setdefault(key, []).append(Path(run["folder"]))
    return runs, origins


def _project(first: Path, runs: Iterable[RunKey], origins: Origins) -> Project:
    """The project of the first site, with the studies and devices that have runs, the studies in
    the order of its configuration."""
    several = len({site for _, site in origins.values()}) > 1
    devices_of: dict[str, list[str]] = {}
    for study, device in dict.fromkeys(key[:2] for key in runs):
        devices_of.setdefault(study, []).append(device)
    with contextlib.chdir(first):
        config = load(Path("config/config.yaml"), dict[str, Any])
        selected = [name for name in config.get("studies") or () if name in devices_of]
        config["studies"] = list(dict.fromkeys([*selected, *devices_of]))
        config["devices"] = list(dict.fromkeys(device for device, _ in origins.values()))
        project = load_project(first, config)
    devices = dict(project.devices)
    for name, (device, site) in origins.items():
        entry = project.devices[device]
        family = entry.variant_of or (device if name != device else None)
        label = f"{entry.label} ({site})" if several else entry.label
        devices[name] = replace(entry, label=label, variant_of=family)
    return replace(
        project,
        config=replace(project.config, devices=list(origins)),
        devices=devices,
        measured=devices_of,
        sites={name: site for name, (_, site) in origins.items()} if several else {},
    )


def _planned(
    project: Project, runs: Mapping[RunKey, Sequence[Path]]
) -> tuple[Plan, dict[RunKey, Path]]:
    """Of each run the newest one that has the settings of its cell, with its folder; without those
    of cells that the project does not plan."""
    plan = make_plan(project)
    planned = {key[:3]: spec.of_cell for key, spec in plan.runs.items()}
    specs = [
        (key, folder, replace(read_document(folder / paths.SPEC_NAME, RunSpec), device=key[1]))
        for key, folders in sorted(runs.items())
        for folder in folders
    ]
    # A cell has the settings of the plan, if a run of it has, else those of its first repeat.
    settings: dict[tuple[str, str, str], Any] = {}
    for key, _, spec in specs:
        settings.setdefault(key[:3], spec.of_cell)
        if spec.of_cell == planned.get(key[:3]):
            settings[key[:3]] = spec.of_cell
    counting: dict[RunKey, RunSpec] = {}
    folders: dict[RunKey, Path] = {}
    for key, folder, spec in specs:
        if key not in counting and key[:3] in planned and spec.of_cell == settings[key[:3]]:
            counting[key], folders[key] = spec, folder
    for key in runs.keys() - counting.keys():
        print(f"left out: {runs[key][0]}: this configuration does not plan it")
    unsupported = [c for c in plan.unsupported if c.device in project.devices_of(c.study)]
    cells = {key[:3] for key in counting}
    shared = [c for c in plan.shared if (c.study, c.device, c.measured_as) in cells]
    return Plan(runs=counting, unsupported=unsupported, shared=shared), folders
