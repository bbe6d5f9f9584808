"""The sites whose results are merged: what they measured, and their files with new devices' names.

A site is an archive, or a project's folder.
"""

import contextlib
import re
import shutil
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from feedrate.cli.redraw import measured
from feedrate.cli.verify import read_project
from feedrate.config.plan import Plan
from feedrate.config.project import Project, load_project, study_names
from feedrate.config.values import read_yaml
from feedrate.core import paths
from feedrate.core.errors import ExpectedError, UsageError
from feedrate.results.crate import PROJECT, results_of
from feedrate.results.imported import Imported
from feedrate.results.ledger import NO_GAINS, WouldHelp
from feedrate.results.record import Record, read_document, read_record, write_record

Key = tuple[str, str, str, int]
"""Study, device, cell and repeat of a run."""
ANY_RECORD = paths.RECORD.format(study="*", device="*", cell="*", repeat="*")
CHOSEN = ("studies", "devices")
"""Keys of config.yaml that the first parts of runs' keys give."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
Names = Mapping[tuple[str, str], str]
"""The name of a site's device in the merged results, by the site and its own name."""


class Site(NamedTuple):
    """The runs of one site, unpacked in `folder`."""

    name: str
    folder: Path
    project: Project
    plan: Plan
    records: dict[Key, Record]


def read_site(text: str, stack: ExitStack) -> Site:
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
        project = as_measured(folder, read_yaml(file, str(file)), records)
    else:
        raise UsageError(f"{path}: neither an archive nor a project's folder")
    with contextlib.chdir(folder):
        try:
            project, plan = measured(project)
        except ExpectedError as error:
            raise ExpectedError(f"{path}: {error}") from None
    specs = {key: replace(r.spec, device=key[1]) for key, r in records.items() if r.spec}
    lacking = [c for c in plan.unsupported if (c.study, c.device, c.cell, 1) not in specs]
    plan = replace(plan, runs=plan.runs | specs, unsupported=lacking)
    return Site(name, folder, project, plan, {key: records[key] for key in plan.runs})


def records_of(folder: Path, studies: Container[str]) -> dict[Key, Record]:
    """The records of all runs of these studies in a project's folder."""
    found: dict[Key, Record] = {}
    for file in sorted(folder.glob(ANY_RECORD)):
        study, device, cell, repeat = file.relative_to(folder).parts[1:5]
        if study in studies and (number := repeat.removeprefix("rep")).isdecimal():
            found[study, device, cell, int(number)] = read_record(file)
    return found


def as_measured(folder: Path, config: dict[str, Any], runs: Iterable[Key]) -> Project:
    """A folder's project with the studies, devices and repeats that its runs have: the choices of
    the calls that made them are not in config.yaml. Raises ExpectedError."""
    if not (keys := sorted(runs)):
        raise ExpectedError(f"{folder}: there is no record of a run in {paths.RESULTS}/")
    chosen = {n: [*dict.fromkeys(k[at] for k in keys)] for at, n in enumerate(CHOSEN)}
    project = load_project(folder, config | chosen)
    most = dict(sorted((study, repeat) for study, _, _, repeat in keys))
    studies = {
        name: replace(study, protocol=replace(study.protocol, repeats=most[name]))
        for name, study in project.studies.items()
    }
    if project.config.repeats == "auto":
        return project
    return replace(project, config=replace(project.config, repeats=None), studies=studies)


def copy_runs(site: Site, names: Names, folder: Path) -> None:
    """Copy a site's run folders and data reports; records get the devices' names of now."""
    for (study, device, cell, repeat), record in site.records.items():
        new = names[site.name, device]
        target = folder / paths.run_dir(study, new, cell, repeat)
        shutil.copytree(site.folder / paths.run_dir(study, device, cell, repeat), target)
        write_record(target / paths.RECORD_NAME, replace(record, device=new))
    for file in (site.folder / paths.DATASETS).glob("*/prepared/data_report.json"):
        target = folder / file.relative_to(site.folder)
        if not target.exists():  # that of the first site, as the pages
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)


def files_of(sites: Sequence[Site], path: str) -> Iterator[tuple[Site, str, Path]]:
    """The sites and studies that have this file, its name, and where a site has it."""
    for site in sites:
        for name in (path.format(study=study) for study in site.project.studies):
            if (site.folder / name).is_file():
                yield site, name, site.folder / name


def imports_of(sites: Sequence[Site], names: Names) -> dict[str, Imported]:
    """The imported runs of all sites by their file, with the devices' names and repeats of now."""
    found: dict[str, Imported] = {}
    for site, name, file in files_of(sites, paths.IMPORTED):
        whole, own = found.setdefault(name, Imported()), read_document(file, Imported)
        whole.files.extend(own.files)
        for record in own.records:
            device = names.get((site.name, record.device), record.device)
            repeat = 1 + sum(one.device == device for one in whole.records)
            whole.records.append(replace(record, device=device, repeat=repeat))
    return found


def gains_of(sites: Sequence[Site], names: Names) -> dict[str, WouldHelp]:
    """What would help at all sites by its file, with the devices' names of now. The ledgers behind
    it cannot be merged: the hash of a line covers the line before."""
    found: dict[str, WouldHelp] = {}
    for site, name, file in files_of(sites, paths.WOULD_HELP):
        own, whole = read_document(file, WouldHelp), found.get(name, NO_GAINS)
        gains = [(names.get((site.name, of), of), cell, told) for of, cell, told in own.gains]
        outcomes = [
            replace(one, device=names.get((site.name, one.device), one.device))
            for one in own.outcomes
        ]
        faults = filter(None, (whole.fault, own.fault and f"{site.name}: {own.fault}"))
        found[name] = WouldHelp(
            fault=" ".join(faults),
            gains=[*whole.gains, *gains],
            outcomes=[*whole.outcomes, *outcomes],
        )
    return found


def predicted_of(sites: Sequence[Site], names: Names) -> dict[str, list[dict[str, Any]]]:
    """The rates predicted at all sites by their file, with the devices' names of now: they need the
    data, which are not here."""
    found: dict[str, list[dict[str, Any]]] = {}
    for site, name, file in files_of(sites, paths.PREDICTED):
        own = read_document(file, list[dict[str, Any]])
        found.setdefault(name, []).extend(
            one | {"device": names.get((site.name, one["device"]), one["device"])} for one in own
        )
    return found
