"""`python -m feedrate archive`: a campaign as one file that others can check and draw again."""

import argparse
import base64
import getpass
import gzip
import io
import json
import platform
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from pyarrow.parquet import read_table

from feedrate import __version__
from feedrate.cli.display import counted
from feedrate.cli.run import REPORT, add_choices, check_configuration
from feedrate.config.plan import Plan, make_plan
from feedrate.config.project import Project, study_names
from feedrate.core import paths
from feedrate.core.errors import ExpectedError, UsageError
from feedrate.core.files import atomic_path, digest_file
from feedrate.core.scrub import Scrubber, names_in
from feedrate.jobs.events import RankEvents
from feedrate.jobs.supervisor import read_commit
from feedrate.results.columns import FILES
from feedrate.results.crate import ENVIRONMENT, PROJECT, Writer
from feedrate.results.record import Outcome, Record, read_record

LEFT_OUT = (paths.MODEL_NAME, "attempt-*", "checkpoint-*", "*.safetensors", "*.bin", "*.pt", ".*")
"""Weights, unfinished attempts and hidden files: they are in no archive."""
WHOLE = {
    paths.LEDGER: "has hashes, which would not hold without them",
    str(REPORT): f"has scripts that an edit could break; its pages are in {paths.RESULTS}/",
}
"""Files that are left out where others are cleaned, and why."""
FURTHER = (
    *("config/**/*.yaml", "config/**/*.csv", f"{paths.LOGS}/**/*.log", f"{paths.LOGS}/**/*.tsv"),
    *(f"{paths.DATASETS}/*/prepared/{name}" for name in ("manifest.json", "data_report.json")),
    *(f"{paths.RESULTS}/*.{suffix}" for suffix in ("csv", "parquet", "json", "jsonl", "html")),
    str(REPORT),
)
_EMBEDDED = re.compile(r"^\s*var results = (\{.*\});$", re.MULTILINE)
"""The pages in report.html: by path, with their content as a data URI."""
OF_STUDY = ("*.csv", "*.parquet", "*.json", "tables/*", "figures/*")
"""Files in the folder of a study."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command: those of `run`, which made the results, and its own."""
    add_choices(parser)
    parser.add_argument("--out", metavar="FILE.zip", type=Path, required=True)
    told = "replace the names of hosts and users by host1, user1; secrets are always hidden"
    parser.add_argument("--scrub", action="store_true", help=told)
    unknown, told = "not given: ask the authors", "of the archive: a text or a URL"
    parser.add_argument("--license", default=unknown, help=told)
    parser.epilog = "Choose the profile and the studies as for `run`."


def archive(options: argparse.Namespace) -> int:
    """Write the archive, and print what it holds and what was left out; return the exit code."""
    if options.out.suffix != ".zip":
        raise UsageError(f"--out {options.out}: not allowed; the name of an archive ends in .zip")
    project, plan = measured(check_configuration(options, []))
    planned = len(make_plan(project).runs)
    campaign = Campaign(project, plan, options.scrub)
    with atomic_path(options.out) as temporary:
        campaign.write(temporary, options.license)
    runs = f"{len(plan.runs)} of {counted(planned, 'planned run')}"
    size_mib = options.out.stat().st_size / 2**20
    print(f"{options.out}: {runs}, {counted(len(campaign.digests), 'file')}, {size_mib:.1f} MiB")
    print(f"SHA-256 {digest_file(options.out)}")
    if campaign.changed:
        print(f"secrets or names were replaced in {counted(campaign.changed, 'file')}")
    for line in [*campaign.left_out, *unplanned(plan)]:
        print(f"left out: {line}")
    return 0


def measured(project: Project) -> tuple[Project, Plan]:
    """The part of a project and of its plan that the working directory has records of. Raises
    ExpectedError if there is none."""
    plan = make_plan(project, elsewhere=True)  # the libraries were there when the runs were made
    has = {key: (paths.run_dir(*key) / paths.RECORD_NAME).is_file() for key in plan.runs}
    runs = {key: spec for key, spec in plan.runs.items() if has[key]}
    if not runs:
        none = f"there is no record of a planned run in {paths.RESULTS}/"
        raise ExpectedError(", but of ".join([none, *unplanned(plan)]))
    for study in {one.study for one in project.config.imports} & {key[0] for key in runs}:
        if not (file := Path(paths.IMPORTED.format(study=study))).is_file():
            raise ExpectedError(f"there is no {file} of the imported runs yet: `run` makes it")
    if outside := [cell for _, _, cell, _ in runs if "/" in cell]:
        raise ExpectedError(f"cell {outside[0]!r}: not allowed; no folder can have this name")
    known = {key[:3] for key in runs}
    studies = {n: s for n, s in project.studies.items() if any(key[0] == n for key in runs)}
    config = replace(project.config, studies=list(studies))
    lacking = [
        cell
        for cell in make_plan(project).unsupported
        if cell.study in studies and (cell.study, cell.device, cell.cell) not in known
    ]
    shared = [cell for cell in plan.shared if (cell.study, cell.device, cell.measured_as) in known]
    kept = replace(project, config=config, studies=studies)
    return kept, Plan(runs=runs, unsupported=lacking, shared=shared)


def unplanned(plan: Plan) -> Iterator[str]:
    """A sentence for each study of the working directory that has records of runs which are not in
    the plan."""
    planned = {paths.run_dir(*key) / paths.RECORD_NAME for key in plan.runs}
    for study in study_names(Path()):
        found = set(Path(paths.STUDY.format(study=study)).glob(f"*/*/rep*/{paths.RECORD_NAME}"))
        if count := len(found - planned):
            yield f"{counted(count, 'run')} of {study} that this configuration does not plan"


def report_pages(folder: Path) -> dict[str, bool]:
    """The pages in a folder's report.html, and whether each is the same as its file in the folder.
    Raises ExpectedError if they cannot be read."""
    try:
        found = _EMBEDDED.search((folder / REPORT).read_text(encoding="utf-8"))
        pages = {
            name: base64.b64decode(page["data_uri"].partition(";base64,")[2])
            for name, page in json.loads(found[1] if found else "").items()
        }
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ExpectedError(f"{REPORT}: its pages cannot be read ({error})") from None
    same = {}
    for name, content in pages.items():
        file = folder / name
        inside = file.resolve().is_relative_to(folder.resolve()) and file.is_file()
        same[name] = inside and file.read_bytes() == content
    return same


def stale_report() -> str:
    """Why the report in the working directory is not one of its results; empty if it is."""
    try:
        pages = report_pages(Path()) if REPORT.is_file() else {}
    except ExpectedError as error:
        return str(error)
    other = counted(sum(not same for same in pages.values()), "page")
    told = f"{REPORT} shows {other} of earlier results: `run` makes it again"
    return "" if all(pages.values()) else told


class Campaign:
    """The files of a campaign in the working directory, and how they are cleaned."""

    def __init__(self, project: Project, plan: Plan, scrub: bool) -> None:
        """With `scrub`, the names of hosts and users are looked for in all files."""
        self.left_out: list[str] = []
        self.changed = 0
        self.digests: dict[str, str] = {}
        """SHA-256 of each file as it is in the archive, by its path here."""
        self._project = project
        self._runs = {key: paths.run_dir(*key) for key in plan.runs}
        # Records come last: they name the digests of the other files.
        files = {*self._further(), *self._run_files()}
        if why := stale_report():
            self.left_out.append(why)
            files.discard(REPORT)
        self._paths = sorted(files, key=lambda p: (p.name == paths.RECORD_NAME, str(p)))
        self._clean = self._scrubber() if scrub else Scrubber()

    def write(self, out: Path, license_: str) -> None:
        """Write the archive."""
        crate = Writer(out)
        for path in self._paths:
            if (content := self._cleaned(path)) is not None:
                self.digests[str(path)] = crate.add(self._clean(str(path)), content)
        whole = json.loads(msgspec.json.encode(self._project))
        made = environment() | {"cleaned": self.changed > 0}
        for name, value in ((PROJECT, whole), (ENVIRONMENT, made)):
            crate.add(name, self._clean(json.dumps(value, indent=1, ensure_ascii=False)).encode())
        crate.finish(*self._about(license_))

    def _cleaned(self, path: Path) -> bytes | None:
        """The content of a file without secrets; None if it has some that cannot be taken out."""
        content = self._record(path) if path.name == paths.RECORD_NAME else path.read_bytes()
        packed = path.suffix == ".gz"
        text = (gzip.decompress(content) if packed else content).decode("utf-8", "surrogateescape")
        if path.suffix == ".parquet":
            text = f"\0{read_table(io.BytesIO(content)).to_pylist()}"
        if (clean := self._clean(text)) == text:
            return content
        why = WHOLE.get(str(path)) or ("is no text" if "\0" in text else "")
        if why:
            self.left_out.append(f"{self._clean(str(path))} has secrets or names: it {why}")
            return None
        self.changed += 1
        made = clean.encode("utf-8", "surrogateescape")
        return gzip.compress(made, mtime=0) if packed else made

    def _record(self, path: Path) -> bytes:
        """A record that names the logs as they are in the archive. A log that had changed after the
        record was made keeps its digest, so that `verify` finds it."""
        content = path.read_bytes()
        record = msgspec.json.decode(content)
        noted = record.get("made_from", {}).get("files", {})  # earlier versions noted none
        for name, digest in list(noted.items()):
            log = path.parent / name
            new = self.digests.get(str(log))
            if new != digest and log.is_file() and digest_file(log) == digest:
                del noted[name]
                noted |= {self._clean(name): new} if new else {}
                content = json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False).encode()
        return content

    def _scrubber(self) -> Scrubber:
        hosts, users = {platform.node(), platform.node().partition(".")[0]}, {getpass.getuser()}
        for path in self._paths:
            found = names_in(path.read_bytes().decode("utf-8", errors="ignore"))
            hosts, users = hosts | found[0], users | found[1]
        return Scrubber(hosts, users, {*words(), *(word for key in self._runs for word in key[:2])})

    def _run_files(self) -> Iterator[Path]:
        for folder in self._runs.values():
            for path in folder.rglob("*"):
                inside = path.relative_to(folder).parts
                kept_back = any(fnmatch(part, out) for part in inside for out in LEFT_OUT)
                if path.is_file() and not path.is_symlink() and not kept_back:
                    yield path

    def _further(self) -> Iterator[Path]:
        of_studies = (f"{paths.RESULTS}/{s}/{p}" for s in self._project.studies for p in OF_STUDY)
        for pattern in (*FURTHER, *of_studies):
            for path in Path().glob(pattern):
                if path.is_file() and not path.name.startswith(("local", ".")):
                    yield path

    def _about(self, license_: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The properties of the whole crate, and the entities that they refer to."""
        records = (read_record(run / paths.RECORD_NAME) for run in self._runs.values())
        studies = ", ".join(self._project.studies)
        license_id = license_ if license_.startswith("http") else "#license"
        root = {
            "name": f"feedrate: {studies}",
            "description": f"{counted(len(self._runs), 'run')} of {studies}: specs, raw events, "
            "logs, records, results, pages, configuration and packages.",
            "datePublished": max(one.provenance.ended_at for one in records) or "1970-01-01",
            "license": {"@id": license_id},
            "mentions": {"@id": "#feedrate"},
        }
        software = {"@id": "#feedrate", "@type": "SoftwareApplication", "name": "feedrate"}
        software["softwareVersion"] = f"{__version__} {read_commit()}".strip()
        licence = {"@id": license_id, "@type": "CreativeWork", "name": license_}
        return root, [software, licence]


def words() -> set[str]:
    """The words that files of every campaign consist of: keys, columns, and values from a list."""

    def of(schema: Any) -> Iterator[str]:
        if isinstance(schema, dict):
            yield from (*schema.get("properties", ()), *map(str, schema.get("enum", ())))
        for part in schema.values() if isinstance(schema, dict) else schema:
            yield from of(part) if isinstance(part, dict | list) else ()

    found = [column.name for columns in FILES.values() for column in columns]
    for kind in (Project, Record, Outcome, RankEvents):
        found += of(msgspec.json.schema(kind))
    return {part for name in found for part in re.split(r"[^A-Za-z0-9]+", name)}


def environment() -> dict[str, Any]:
    """Python, platform and all packages of this process, which made the tables and pages."""
    packages = sorted((found.metadata["Name"], found.version) for found in distributions())
    return {
        "feedrate": __version__,
        "commit": read_commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": dict(packages),
    }
