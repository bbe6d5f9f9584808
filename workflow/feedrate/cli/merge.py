"""`python -m feedrate merge`: the results of several sites as one set of results and one page.

A device that two sites have appears once for each.
"""

import argparse
import contextlib
import itertools
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from rich.text import Text

from feedrate.cli.display import counted, output, table
from feedrate.cli.redraw import redraw
from feedrate.cli.sites import (
    Key,
    Names,
    Site,
    copy_runs,
    gains_of,
    imports_of,
    predicted_of,
    read_site,
)
from feedrate.cli.verify import flat
from feedrate.config.additions import with_page
from feedrate.config.plan import Plan
from feedrate.config.project import Project
from feedrate.core import paths
from feedrate.core.errors import ExpectedError, UsageError
from feedrate.core.files import replaced_folder, write_json, write_text
from feedrate.flow.view import PlanView
from feedrate.report import markup, overview, page
from feedrate.results.crate import ENVIRONMENT, PROJECT

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
LISTED = 5


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
    with ExitStack() as stack:
        sites = [read_site(text, stack) for text in options.sites]
        if double := [a.name for a, b in itertools.combinations(sites, 2) if a.name == b.name]:
            name = double[0]
            raise UsageError(f"two sites are called {name}: name them, as in a={name}.zip")
        refuse_duplicates(sites)
        names = device_names(sites)
        project, plan = merged(sites, names)
        facts = list(differing(sites))
        with replaced_folder(options.out) as folder:
            for site in sites:
                copy_runs(site, names, folder)
            for kept in (imports_of, gains_of, predicted_of):
                for file, content in kept(sites, names).items():
                    write_json(folder / file, msgspec.to_builtins(content))
            shutil.copytree(root / "config", folder / "config")
            write_text(folder / PROJECT, msgspec.json.encode(project).decode())
            with contextlib.chdir(folder):
                redraw(PlanView(project, folder, plan), root, parse=False)
                add_to_page(facts, [site.name for site in sites])
    columns = ("of", "what", *(site.name for site in sites))
    output().print(table("Sites", columns, (map(Text, fact) for fact in facts), wrapped=columns))
    renamed = [f"{new} is {old} of {site}" for (site, old), new in names.items() if old != new]
    print(
        f"{options.out}: {counted(len(plan.runs), 'run')} of {len(sites)} sites", *renamed, sep="; "
    )
    return 0


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


def device_names(sites: Sequence[Site]) -> dict[tuple[str, str], str]:
    """The name of each site's devices in the merged results: the first site that has a device keeps
    its name, so that published numbers and claims apply to it; others add their own name."""
    names: dict[tuple[str, str], str] = {}
    for site in sites:
        for device in dict.fromkeys(key[1] for key in site.plan.runs):
            taken = device in names.values()
            names[site.name, device] = f"{device}-{site.name}" if taken else device
    if len({*names.values()}) < len(names):
        raise UsageError(
            "two devices would have the same name in the merged results, because a repeated name "
            "becomes DEVICE-SITE: give the sites other names, as in NAME=SITE"
        )
    return names


def merged(sites: Sequence[Site], names: Names) -> tuple[Project, Plan]:
    """One project and one plan of all runs. Studies of the same name have the pages, claims and
    thresholds of the first site; raises ExpectedError where their factors or baselines differ."""
    several = {old for (_, old), new in names.items() if old != new}
    whole = sites[0].project
    plan = Plan(runs={}, unsupported=[], shared=[])
    devices = {n: one for site in reversed(sites) for n, one in site.project.devices.items()}
    for site in sites:
        own = {old: new for (of, old), new in names.items() if of == site.name}
        for old, new in own.items():
            devices[new] = entry = site.project.devices[old]
            if old in several:
                varied = entry.variant_of or (old if new != old else None)
                label = f"{entry.label} ({site.name})"
                devices[new] = replace(entry, label=label, variant_of=varied)
        whole = _with_studies(whole, site)
        for (study, device, cell, repeat), spec in site.plan.runs.items():
            plan.runs[study, own[device], cell, repeat] = replace(spec, device=own[device])
        unsupported = (cell for cell in site.plan.unsupported if cell.device in own)
        plan.unsupported.extend(replace(c, device=own[c.device]) for c in unsupported)
        shared = (cell for cell in site.plan.shared if cell.device in own)
        plan.shared.extend(replace(c, device=own[c.device]) for c in shared)
    imports = [one for site in sites for one in site.project.config.imports]
    studies = {name: with_page(study, name, imports) for name, study in whole.studies.items()}
    config = replace(whole.config, devices=[*names.values()], studies=[*studies], imports=imports)
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
        levels = {
            n: [*dict.fromkeys([*one.factors[n].levels, *f.levels])]
            for n, f in study.factors.items()
        }
        studies[name] = replace(
            one, factors={n: replace(f, levels=levels[n]) for n, f in one.factors.items()}
        )
    parts = ("published", "scores", "accuracies", "sheets")
    tables = {part: {**getattr(site.project, part), **getattr(whole, part)} for part in parts}
    return replace(whole, studies=studies, **tables)


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
    with contextlib.suppress(OSError, ValueError, LookupError):
        yield "", "feedrate", json.loads((site.folder / ENVIRONMENT).read_bytes())["feedrate"]
    for key, record in site.records.items():
        study, device, made = key[0], key[1], msgspec.to_builtins(record.provenance)
        yield "", "schema version", str(record.schema_version)
        yield study, "source digest", made.pop("source_digest")[:12]
        yield study, "data digest", made.pop("data_digest")[:12]
        if spec := record.spec:
            protocol = spec.protocol
            steps = f"{protocol.steps} steps after {protocol.warmup_steps} left out"
            yield study, "protocol", steps
            yield device, "cards", f"{spec.count} on {counted(spec.nodes, 'host')}"
            if key in shared:
                used = msgspec.to_builtins({"settings": spec.settings, "protocol": protocol})
                for what, value in flat(used):
                    yield f"{study} {device}", what, str(value)
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
