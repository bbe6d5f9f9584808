"""`python -m feedrate merge`: the results of several sites as one set of results and one page.

A site is an archive, or a project's folder. A device that two sites have appears once for each.
"""

import argparse
import contextlib
import itertools
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace
from rich.text import Text

from feedrate.cli.display import output, table
from feedrate.cli.redraw import Key, leftovers, measured, records_of, redraw
from feedrate.cli.verify import flat, read_project
from feedrate.config.plan import Plan
from feedrate.config.project import Project, load_project, study_names
from feedrate.config.values import load
from feedrate.core import paths
from feedrate.core.errors import ExpectedError, UsageError
from feedrate.core.files import replaced_folder, write_text
from feedrate.flow.view import PlanView
from feedrate.report import markup, overview, page, text
from feedrate.results.crate import ENVIRONMENT, PROJECT, results_of
from feedrate.results.record import Record, write_record

ALWAYS = ("schema version", "feedrate", "source digest", "protocol")
"""Facts that are shown even where they agree."""
NOT_FACTS = (
    *("started_at", "ended_at", "duration_s", "command", "spec_digest", "attempt", "trace"),
    *("machine_before.load_1min", "machine_before.load_5min", "machine_before.cpu_mhz"),
    "machine_before.other_training_jobs",
)
"""Parts of a run's provenance that differ from run to run."""
_COMMIT = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{28}\b")
"""A commit; the group is its short form, because a table of several sites has no room for more."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
LISTED = 5


class Site(NamedTuple):
    """The runs of one site, unpacked in `folder`."""

    name: str
    folder: Path
    project: Project
    plan: Plan
    records: dict[Key, Record]
    names: dict[str, str]
    """The devices' names in the merged results, by their own: see `name_devices`."""
    left_out: Sequence[Key] = ()
    """Runs with other settings than the others of their cells."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    told = "an archive, or a project's folder, and the site's name; default: that of the file"
    parser.add_argument("sites", metavar="[NAME=]SITE", nargs="+", help=told)
    parser.add_argument("--out", metavar="FOLDER", type=Path, required=True, help="a new folder")


def merge(options: argparse.Namespace) -> int:
    """Write the merged results, print what differs between the sites; return the exit code."""
    if options.out.exists():
        raise UsageError(f"--out {options.out}: not allowed; it exists")
    if len(options.sites) == 1:
        raise UsageError("one site: there is nothing to merge")
    root = Path.cwd()
    with contextlib.ExitStack() as stack:
        sites = [read_site(text, stack) for text in options.sites]
        for a, b in itertools.combinations(sites, 2):
            if a.name == b.name:
                raise UsageError(f"two sites are called {a.name}: name them, as in a={a.name}.zip")
        refuse_duplicates(sites)
        name_devices(sites)
        project, plan = merged(sites)
        facts = list(differing(sites))
        with replaced_folder(options.out) as folder:
            for site in sites:
                copy_runs(site, folder)
            shutil.copytree(root / "config", folder / "config")
            write_text(folder / PROJECT, msgspec.json.encode(project).decode())
            with contextlib.chdir(folder):
                redraw(PlanView(project, folder, plan), root, parse=False)
                add_to_page(facts, [site.name for site in sites])
    columns = ("of", "what", *(site.name for site in sites))
    output().print(table("Sites", columns, (map(Text, fact) for fact in facts), wrapped=columns))
    names = [(site.name, *pair) for site in sites for pair in site.names.items()]
    renamed = [f"{new} is {old} of {site}" for site, old, new in names if old != new]
    told = f"{options.out}: {text.counted(len(plan.runs), 'run')} of {len(sites)} sites"
    print(told, *renamed, sep="; ")
    for site in sites:
        for study, device, cell, repeat in site.left_out:
            run = f"{study} {device} {cell} rep {repeat} of {site.name}"
            print(f"left out: {run}, made with other settings than the cell's other runs")
    return 0


def read_site(text: str, stack: contextlib.ExitStack) -> Site:
    """The site that a word of the command line names. Raises ExpectedError."""
    name, given, place = text.rpartition("=")
    path = Path(place if given else text)
    name = name or path.resolve().name.removesuffix(".zip")
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not allowed as a site's name; name it, as in a={path}")
    folder = stack.enter_context(results_of(path)).resolve()
    if (folder / PROJECT).is_file():
        project = read_project(folder, path)
        records = records_of(folder, project.studies)
    elif (file := folder / "config/config.yaml").is_file():
        records = records_of(folder, study_names(folder))
        project = as_measured(folder, load(file, dict[str, Any]), records)
    else:
        raise UsageError(f"{path}: neither an archive nor a project's folder")
    with contextlib.chdir(folder):
        try:
            project, plan = measured(project)
        except ExpectedError as error:
            raise ExpectedError(f"{path}: {error}") from None
    left_out = leftovers(records, plan)
    records = {key: record for key, record in records.items() if key not in left_out}
    specs = {key: replace(r.spec, device=key[1]) for key, r in records.items() if r.spec}
    specs = {key: spec for key, spec in plan.runs.items() if key in records} | specs
    lacking = [c for c in plan.unsupported if (c.study, c.device, c.cell, 1) not in specs]
    plan = replace(plan, runs=specs, unsupported=lacking)
    return Site(name, folder, project, plan, {key: records[key] for key in specs}, {}, left_out)


def as_measured(folder: Path, config: dict[str, Any], runs: Iterable[Key]) -> Project:
    """A folder's project with the studies, devices and repeats that its runs have: the choices of
    the calls that made them are not in config.yaml. Raises ExpectedError."""
    if not (keys := sorted(runs)):
        raise ExpectedError(f"{folder}: there is no record of a run in {paths.RESULTS}/")
    chosen, devices = ([*dict.fromkeys(key[at] for key in keys)] for at in (0, 1))
    project = load_project(folder, config | {"studies": chosen, "devices": devices})
    most = dict(sorted((study, repeat) for study, _, _, repeat in keys))
    studies = {
        name: replace(study, protocol=replace(study.protocol, repeats=most[name]))
        for name, study in project.studies.items()
    }
    if project.config.repeats == "auto":
        return project
    return replace(project, config=replace(project.config, repeats=None), studies=studies)


def refuse_duplicates(sites: Sequence[Site]) -> None:
    """Raise ExpectedError if two sites have the same run: the same spec, start and duration."""
    seen: dict[tuple[Any, ...], str] = {}
    double: list[str] = []
    for site in sites:
        for key, record in site.records.items():
            made = record.provenance
            run = made.spec_digest, made.started_at, made.duration_s
            if made.started_at and seen.setdefault(run, site.name) != site.name:
                double.append(f"{' '.join(map(str, key))} in {seen[run]} and {site.name}")
    if double:
        more = [f"… and {len(double) - LISTED} more"] if len(double) > LISTED else []
        raise ExpectedError("\n  ".join(["the same runs in two sites:", *double[:LISTED], *more]))


def name_devices(sites: Sequence[Site]) -> None:
    """Name each site's devices before they are merged: the first site that has a device keeps its
    name, so that published numbers and claims apply to it; others add their own name."""
    names: list[str] = []
    for site in sites:
        for device in dict.fromkeys(key[1] for key in site.plan.runs):
            site.names[device] = f"{device}-{site.name}" if device in names else device
            names.append(site.names[device])
    if len(set(names)) < len(names):
        raise UsageError(
            "two devices would have the same name in the merged results, because a repeated name "
            "becomes DEVICE-SITE: give the sites other names, as in NAME=SITE"
        )


def merged(sites: Sequence[Site]) -> tuple[Project, Plan]:
    """One project and one plan of all runs. Studies of the same name have the pages, claims and
    thresholds of the first site; raises ExpectedError where their factors or baselines differ."""
    several = {old for site in sites for old, new in site.names.items() if old != new}
    whole = sites[0].project
    plan = Plan(runs={}, unsupported=[], shared=[])
    devices = {n: one for site in reversed(sites) for n, one in site.project.devices.items()}
    for site in sites:
        own = site.names
        for old, new in own.items():
            devices[new] = one = site.project.devices[old]
            if old in several:
                varied = one.variant_of or (old if new != old else None)
                devices[new] = replace(one, label=f"{one.label} ({site.name})", variant_of=varied)
        whole = _with_studies(whole, site)
        for (study, device, cell, repeat), spec in site.plan.runs.items():
            plan.runs[study, own[device], cell, repeat] = replace(spec, device=own[device])
        unsupported = (cell for cell in site.plan.unsupported if cell.device in own)
        plan.unsupported.extend(replace(c, device=own[c.device]) for c in unsupported)
        shared = (cell for cell in site.plan.shared if cell.device in own)
        plan.shared.extend(replace(c, device=own[c.device]) for c in shared)
    studies = whole.studies
    names = [name for site in sites for name in site.names.values()]
    config = replace(whole.config, devices=names, studies=[*studies])
    whole = replace(whole, config=config, devices=devices, studies=studies)
    whole = replace(whole, measured={name: plan.devices_of(name) for name in studies})
    return replace(whole, further={}, searched={}), plan


def _with_studies(whole: Project, site: Site) -> Project:
    """The project with the studies of a site, and with its levels of studies that both have."""
    studies = {**whole.studies}
    for name, study in site.project.studies.items():
        one = studies.setdefault(name, study)
        if (list(one.factors), one.baseline) != (list(study.factors), study.baseline):
            raise ExpectedError(f"{site.name}: the study {name} has other factors or baselines")
        factors = {}
        for key, factor in one.factors.items():
            levels = dict.fromkeys([*factor.levels, *study.factors[key].levels])
            factors[key] = replace(factor, levels=[*levels])
        studies[name] = replace(one, factors=factors)
    parts = ("published", "scores", "accuracies", "sheets")
    tables = {part: {**getattr(site.project, part), **getattr(whole, part)} for part in parts}
    return replace(whole, studies=studies, **tables)


def copy_runs(site: Site, folder: Path) -> None:
    """Copy a site's run folders and data reports; records get the devices' names of now."""
    for (study, device, cell, repeat), record in site.records.items():
        new = site.names[device]
        target = folder / paths.run_dir(study, new, cell, repeat)
        shutil.copytree(site.folder / paths.run_dir(study, device, cell, repeat), target)
        write_record(target / paths.RECORD_NAME, replace(record, device=new))
    for file in (site.folder / paths.DATASETS).glob("*/prepared/data_report.json"):
        target = folder / file.relative_to(site.folder)
        if not target.exists():  # that of the first site, as the pages
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)


Fact = tuple[str, ...]
"""A study or a device (empty: all), a fact about its runs, and the value of each site."""


def differing(sites: Sequence[Site]) -> Iterator[Fact]:
    """The facts that differ between sites that have them, and those in ALWAYS."""
    found: dict[tuple[str, str], dict[str, set[str]]] = {}
    keys = Counter(key for site in sites for key in site.records)
    for site in sites:
        for of, what, value in _facts(site, {key for key, count in keys.items() if count > 1}):
            found.setdefault((of, what), {}).setdefault(site.name, set()).add(value)
    for about, values in found.items():
        texts = {name: ", ".join(sorted(told)) for name, told in values.items()}
        if about[1] in ALWAYS or len(set(texts.values())) > 1:
            yield (*about, *(texts.get(site.name, "") for site in sites))


def _facts(site: Site, shared: set[Key]) -> Iterator[tuple[str, str, str]]:
    """A study or device, a fact and its value, for each run of a site."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        yield "", "feedrate", json.loads((site.folder / ENVIRONMENT).read_bytes())["feedrate"]
    for key, record in site.records.items():
        study, device, made = key[0], key[1], msgspec.to_builtins(record.provenance)
        yield "", "schema version", str(record.schema_version)
        yield study, "source digest", made.pop("source_digest")[:12]
        yield study, "data digest", made.pop("data_digest")[:12]
        if spec := record.spec:
            timed = spec.protocol
            yield study, "protocol", f"{timed.steps} steps after {timed.warmup_steps} left out"
            yield device, "cards", f"{spec.count} on {text.counted(spec.nodes, 'host')}"
            if key in shared:
                used = msgspec.to_builtins({"settings": spec.settings, "protocol": timed})
                yield from ((f"{study} {device}", what, str(one)) for what, one in flat(used))
        for what, value in flat(made):
            if what not in NOT_FACTS and value not in ("", None, [], {}):
                shown = f"{value:.4g}" if isinstance(value, float) else str(value)
                yield device, what.replace("_", " "), _COMMIT.sub(r"\1", shown)


def add_to_page(facts: Sequence[Fact], columns: Sequence[str]) -> None:
    """Add the facts to the first page as a table."""
    file = Path(paths.OVERVIEW)
    rows = (markup.row(f"{of} {what}".strip(), *values) for of, what, *values in facts)
    heading = markup.el("h2", "Sites", id="sites")
    section = markup.el("section", heading, markup.table(("Fact", *columns), rows, "texts"))
    title = f"Results of {' and '.join(columns)}"
    write_text(file, page.page(title, overview.content_of(file), section))
