"""`python -m feedrate archive`: a campaign as one file that others can check and draw again."""

import argparse
import getpass
import gzip
import io
import json
import platform
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from feedrate import __version__
from feedrate.cli.display import counted
from feedrate.cli.run import REPORT, add_choices, check_configuration
from feedrate.config.plan import Plan, make_plan
from feedrate.config.project import Project
from feedrate.core import paths
from feedrate.core.errors import ExpectedError, UsageError
from feedrate.core.files import atomic_path, digest_file
from feedrate.core.scrub import Scrubber, names_in
from feedrate.jobs.supervisor import read_commit
from feedrate.results.crate import ENVIRONMENT, PROJECT, Writer
from feedrate.results.record import Record

LEFT_OUT = (paths.MODEL_NAME, "attempt-*", "checkpoint-*", "*.safetensors", "*.bin", "*.pt", ".*")
"""Weights, unfinished attempts and hidden files: they are in no archive."""
SOFTWARE = "#feedrate"
FURTHER = (
    *("config/**/*.yaml", "config/**/*.csv", f"{paths.LOGS}/**/*.log", f"{paths.LOGS}/**/*.tsv"),
    *(f"{paths.DATASETS}/*/prepared/{name}" for name in ("manifest.json", "data_report.json")),
    *(f"{paths.RESULTS}/*.{suffix}" for suffix in ("csv", "parquet", "json", "jsonl", "html")),
    str(REPORT),
)
OF_STUDY = ("*.csv", "*.parquet", "*.json", "tables/*", "figures/*")
"""Files in the folder of a study."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command: those of `run`, which made the results, and its own."""
    add_choices(parser)
    parser.add_argument("--out", metavar="FILE.zip", type=Path, required=True)
    parser.add_argument(
        "--scrub",
        action="store_true",
        help="replace the names of hosts and users by host1, user1; secrets are always hidden",
    )
    parser.add_argument(
        "--license", default="not given: ask the authors", help="of the archive: a text or a URL"
    )
    parser.epilog = "Choose the profile and the studies as for `run`."


def archive(options: argparse.Namespace, others: Sequence[str]) -> int:
    """Write the archive, and print what it holds and what was left out; return the exit code."""
    if others:
        raise UsageError(f"unknown: {' '.join(others)}")
    if options.out.suffix != ".zip":
        raise UsageError(f"--out {options.out}: not allowed; the name of an archive ends in .zip")
    project, plan = measured(check_configuration(options, []))
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
    for line in campaign.left_out:
        print(f"left out: {line}")
    return 0


def measured(project: Project) -> tuple[Project, Plan]:
    """The part of a project and of its plan that the working directory has records of. Raises
    ExpectedError if there is none."""
    plan = make_plan(project)
    runs = {
        key: s
        for key, s in plan.runs.items()
        if (paths.run_dir(*key) / paths.RECORD_NAME).is_file()
    }
    studies = {name: s for name, s in project.studies.items() if any(k[0] == name for k in runs)}
    if not studies:
        raise ExpectedError(
            f"there is no record of a planned run in {paths.RESULTS}/: nothing was measured"
        )
    config = replace(project.config, studies=list(studies))
    known = {key[:3] for key in runs}
    lacking = [cell for cell in plan.unsupported if cell.study in studies]
    shared = [cell for cell in plan.shared if (cell.study, cell.device, cell.measured_as) in known]
    kept = replace(project, config=config, studies=studies)
    return kept, Plan(runs=runs, unsupported=lacking, shared=shared)


class Campaign:
    """The files of a campaign in the working directory, and how they are cleaned."""

    def __init__(self, project: Project, plan: Plan, scrub: bool) -> None:
        """With `scrub`, the names of hosts and users are looked for in all files."""
        self.left_out: list[str] = []
        self.changed = self.files = 0
        self._plan = plan
        self._project = json.loads(msgspec.json.encode(project))
        self._paths = sorted({*self._further(project), *self._run_files()}, key=_last_records)
        self._clean = self._scrubber() if scrub else Scrubber()
        self._digests: dict[str, str] = {}

    def write(self, out: Path, license_: str) -> None:
        """Write the archive."""
        crate = Writer(out)
        for path in self._paths:
            name, content = self._clean(str(path)), self._cleaned(path)
            if content is not None:
                self._digests[str(path)] = crate.add(name, content)
        facts = environment()
        for name, value in ((PROJECT, self._project), (ENVIRONMENT, facts)):
            crate.add(name, self._clean(json.dumps(value, indent=1, ensure_ascii=False)).encode())
        self.files = len(self._digests) + 2
        crate.finish(*self._about(license_))

    def _cleaned(self, path: Path) -> bytes | None:
        """The content of a file without secrets; None if it has some that cannot be taken out."""
        content = path.read_bytes()
        if path.name == paths.RECORD_NAME:
            content = self._with_new_digests(path, content)
        packed = path.suffix == ".gz"
        try:
            text = (gzip.decompress(content) if packed else content).decode("utf-8")
        except (OSError, EOFError, UnicodeDecodeError):
            text = content.decode("latin-1")
            if path.suffix == ".parquet":
                return self._parquet(path, content)
            if self._clean(text) != text:
                self.left_out.append(
                    f"{self._clean(str(path))} has secrets or names, and is no text"
                )
                return None
            return content
        clean = self._clean(text)
        if clean == text:
            return content
        if path == Path(paths.LEDGER):
            self.left_out.append(f"{path} names hosts: without them its hashes would not hold")
            return None
        if path == REPORT:  # an edit could break its scripts
            self.left_out.append(
                f"{REPORT} shows secrets or names; its pages are in {paths.RESULTS}/"
            )
            return None
        self.changed += 1
        return gzip.compress(clean.encode(), mtime=0) if packed else clean.encode()

    def _parquet(self, path: Path, content: bytes) -> bytes:
        """A Parquet file with clean texts; its own bytes if they are clean."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = old = pq.read_table(path)
        for number, field in enumerate(old.schema):
            if field.type == pa.string():
                texts = [text and self._clean(text) for text in old.column(number).to_pylist()]
                table = table.set_column(number, field, pa.array(texts, pa.string()))
        if table.equals(old):
            return content
        self.changed += 1
        made = io.BytesIO()
        pq.write_table(table, made)
        return made.getvalue()

    def _with_new_digests(self, path: Path, content: bytes) -> bytes:
        """A record that names the logs as they are in the archive."""
        record = msgspec.json.decode(content)
        noted = record.get("made_from", {}).get("files", {})  # earlier versions noted none
        for name in list(noted):
            digest = self._digests.get(str(path.parent / name))
            # Logs that changed after the record was made stay so: verify shall find it.
            if digest != noted[name] and digest_file_or_none(path.parent / name) == noted[name]:
                noted.pop(name)
                if digest:
                    noted[self._clean(name)] = digest
        same = record == msgspec.json.decode(content)
        return (
            content
            if same
            else (json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
        )

    def _scrubber(self) -> Scrubber:
        hosts, users = {platform.node(), platform.node().partition(".")[0]}, {getpass.getuser()}
        for path in self._paths:
            found = names_in(path.read_bytes().decode("utf-8", errors="ignore"))
            hosts, users = hosts | found[0], users | found[1]
        words = {*Record.__struct_fields__, *(word for key in self._plan.runs for word in key[:2])}
        return Scrubber(hosts, users, words)

    def _run_files(self) -> Iterator[Path]:
        for key in self._plan.runs:
            folder = paths.run_dir(*key)
            for path in folder.rglob("*"):
                inside = path.relative_to(folder).parts
                kept_back = any(fnmatch(part, out) for part in inside for out in LEFT_OUT)
                if path.is_file() and not path.is_symlink() and not kept_back:
                    yield path

    @staticmethod
    def _further(project: Project) -> Iterator[Path]:
        patterns = [
            *FURTHER,
            *(f"{paths.RESULTS}/{s}/{p}" for s in project.studies for p in OF_STUDY),
        ]
        for pattern in patterns:
            for path in Path().glob(pattern):
                if path.is_file() and not path.name.startswith(("local", ".")):
                    yield path

    def _about(self, license_: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The properties of the whole crate, and the software that made it."""
        ended = sorted(
            msgspec.json.decode((paths.run_dir(*key) / paths.RECORD_NAME).read_bytes())[
                "provenance"
            ]["ended_at"]
            for key in self._plan.runs
        )
        studies = ", ".join(dict.fromkeys(key[0] for key in self._plan.runs))
        linked = license_.startswith("http")
        licence = {
            "@id": license_ if linked else "#license",
            "@type": "CreativeWork",
            "name": license_,
        }
        root = {
            "name": f"feedrate: {studies}",
            "description": f"{counted(len(self._plan.runs), 'run')} of {studies}: specs, raw "
            "events, logs, records, results, pages, configuration and packages.",
            "datePublished": ended[-1] or "1970-01-01",
            "license": {"@id": licence["@id"]},
            "mentions": {"@id": SOFTWARE},
        }
        software = {
            "@id": SOFTWARE,
            "@type": "SoftwareApplication",
            "name": "feedrate",
            "version": __version__,
            "softwareVersion": read_commit() or __version__,
        }
        return root, [software, licence]


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


def digest_file_or_none(path: Path) -> str | None:
    """The SHA-256 of a file, if it exists."""
    return digest_file(path) if path.is_file() else None


def _last_records(path: Path) -> tuple[bool, str]:
    """Records come last: they name the digests of the other files."""
    return path.name == paths.RECORD_NAME, str(path)
