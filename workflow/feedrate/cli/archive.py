"""`python -m feedrate archive`: a campaign as one file that others can check and draw again."""

import argparse
import getpass
import gzip
import json
import platform
import re
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatch
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import msgspec

from feedrate import __version__
from feedrate.cli.redraw import make_again, measured, refuse_other_settings, unplanned
from feedrate.cli.run import add_choices, check_configuration
from feedrate.config.plan import Plan, make_plan
from feedrate.config.project import Project
from feedrate.config.values import convert
from feedrate.core import paths
from feedrate.core.errors import ExpectedError, UsageError
from feedrate.core.files import atomic_path, digest_file
from feedrate.core.scrub import Scrubber, names_in
from feedrate.jobs.events import RankEvents
from feedrate.jobs.supervisor import read_commit
from feedrate.report.text import counted
from feedrate.results.columns import CELLS, FILES
from feedrate.results.crate import ENVIRONMENT, PROJECT, TOP_FOLDERS, Writer
from feedrate.results.files import read_csv
from feedrate.results.record import Outcome, Record, read_record

LEFT_OUT = (paths.MODEL_NAME, "attempt-*", "checkpoint-*", "*.safetensors", "*.bin", "*.pt", ".*")
"""Weights, unfinished attempts and hidden files: they are in no archive."""
FURTHER = (
    *("config/**/*.yaml", "config/**/*.csv", f"{paths.LOGS}/**/*.log", f"{paths.LOGS}/**/*.tsv"),
    *(f"{paths.DATASETS}/*/prepared/{name}" for name in ("manifest.json", "data_report.json")),
    *(f"{paths.RESULTS}/*.{suffix}" for suffix in ("csv", "parquet", "json", "jsonl", "html")),
)
OF_STUDY = ("*.csv", "*.parquet", "*.json", "tables/*", "figures/*")


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
    refuse_other_settings(plan)
    planned = len(make_plan(project).runs)
    campaign = Campaign(project, plan, options.scrub)
    with atomic_path(options.out) as temporary:
        campaign.write(temporary, options.license)
    runs = f"{len(plan.runs)} of {counted(planned, 'planned run')}"
    size_mib = options.out.stat().st_size / 2**20
    print(f"{options.out}: {runs}, {counted(campaign.files, 'file')}, {size_mib:.1f} MiB")
    print(f"SHA-256 {digest_file(options.out)}")
    if campaign.changed:
        print(f"secrets or names were replaced in {counted(campaign.changed, 'file')}")
    for line in [*campaign.left_out, *unplanned(plan)]:
        print(f"left out: {line}")
    return 0


class Campaign:
    """The files of a campaign in the working directory. They are cleaned of secrets and, with
    `scrub`, of the names of hosts and users."""

    def __init__(self, project: Project, plan: Plan, scrub: bool) -> None:
        self.left_out: list[str] = []
        self.changed = 0
        self.files = 0
        self._project = project
        self._runs = {key: paths.run_dir(*key) for key in plan.runs}
        self._paths = sorted(set(self._files()))
        self._clean = self._scrubber(scrub)

    def write(self, out: Path, license_: str) -> None:
        """Write the archive. If texts are replaced in any file, all that is derived from the runs
        is made again from the cleaned ones; also if the last call merged other studies."""
        whole = json.dumps(msgspec.to_builtins(self._project), indent=1)
        with tempfile.TemporaryDirectory(prefix="feedrate-") as name:
            folder, project = Path(name), self._cleaned(PROJECT, whole)
            for path in self._paths:
                self._copy(path, folder)
            if self.changed or self.left_out or self._are_of_others():
                self._refuse_changed_logs()
                make_again(convert(json.loads(project), Project, PROJECT), folder)
            crate = Writer(out)
            found = (file for top in TOP_FOLDERS for file in (folder / top).rglob("*"))
            for path in sorted(file for file in found if file.is_file()):
                crate.add(str(path.relative_to(folder)), path.read_bytes())
                self.files += 1
        for file, text in ((PROJECT, project), (ENVIRONMENT, json.dumps(environment(), indent=1))):
            crate.add(file, self._clean(text).encode())
        crate.finish(*self._about(license_))

    def _copy(self, path: Path, folder: Path) -> None:
        """Copy a file without secrets, unless it has some that cannot be taken out."""
        content = path.read_bytes()
        packed = path.suffix == ".gz"
        try:
            plain = gzip.decompress(content) if packed else content
        except (EOFError, OSError, zlib.error):
            self.left_out.append(f"{self._clean(str(path))} is damaged")
            return
        text = plain.decode("utf-8", "surrogateescape")
        clean = self._cleaned(str(path).removesuffix(".gz"), text)
        if clean != text:
            why = "is not text" if "\0" in text and path.suffix != ".parquet" else ""
            if why:
                self.left_out.append(f"{self._clean(str(path))} has secrets or names: it {why}")
                return
            self.changed += 1  # a Parquet file, which this damages, is made again
            content = clean.encode("utf-8", "surrogateescape")
            content = gzip.compress(content, mtime=0) if packed else content
        target = folder / self._clean(str(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    def _cleaned(self, name: str, text: str) -> str:
        """A file's text without secrets. Raises ExpectedError if less of it is then JSON."""
        clean = self._clean(text)
        if clean != text and _documents(name, clean) < _documents(name, text):
            raise ExpectedError(f"{self._clean(name)}: without its secrets it would not be JSON")
        return clean

    def _are_of_others(self) -> bool:
        """Whether the merged results are those of another selection of studies. Raises TableError
        for damaged ones."""
        file = Path(paths.of_all_studies(paths.CELLS_CSV))
        if not file.is_file():
            return False
        merged = {row.get("study") for row in read_csv(file, CELLS)}
        return not {study for study, *_ in self._runs} <= merged <= set(self._project.studies)

    def _refuse_changed_logs(self) -> None:
        """Raise ExpectedError if a log has changed since its record, which is made again now."""
        for run in self._runs.values():
            for name, digest in read_record(run / paths.RECORD_NAME).made_from.files.items():
                if not (log := run / name).is_file() or digest_file(log) != digest:
                    raise ExpectedError(f"{log} has changed since its record was made")

    def _scrubber(self, scrub: bool) -> Scrubber:
        known = {*words(), *(word for key in self._runs for word in key[:2])}
        if not scrub:
            return Scrubber(words=known)
        hosts, users = {platform.node(), platform.node().partition(".")[0]}, {getpass.getuser()}
        for path in self._paths:
            found = names_in(path.read_bytes().decode("utf-8", errors="ignore"))
            hosts, users = hosts | found[0], users | found[1]
        return Scrubber(hosts, users, known)

    def _files(self) -> Iterator[Path]:
        of_studies = (f"{paths.RESULTS}/{s}/{p}" for s in self._project.studies for p in OF_STUDY)
        for pattern in (*FURTHER, *of_studies):
            for path in Path().glob(pattern):
                if path.is_file() and not path.name.startswith(("local", ".")):
                    yield path
        for folder in self._runs.values():
            for path in folder.rglob("*"):
                inside = path.relative_to(folder).parts
                kept_back = any(fnmatch(part, out) for part in inside for out in LEFT_OUT)
                if path.is_file() and not path.is_symlink() and not kept_back:
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


def _documents(name: str, text: str) -> int:
    """How many documents of a JSON file can be read, or lines of a .jsonl; of others 0."""
    found = 0
    if name.endswith((".json", ".jsonl")):
        for part in text.split("\n") if name.endswith("l") else [text]:
            with suppress(ValueError, RecursionError):
                json.loads(part)
                found += 1
    return found


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
