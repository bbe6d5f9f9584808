"""`python -m feedrate archive`: runs, configuration, results and report as one zip file."""

import argparse
import json
import zipfile
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path

from feedrate.config.values import size_text
from feedrate.core import paths
from feedrate.core.errors import ExpectedError, UsageError
from feedrate.core.files import atomic_path, digest_file
from feedrate.core.processes import command_text
from feedrate.core.secrets import Masker, hide_secrets
from feedrate.report.text import counted
from feedrate.results.record import RECORDS_NAME, read_records
from feedrate.results.study_plan import StudyPlan, read_plan

PARTS = (f"{paths.RESULTS}/**/*", "config/**/*.yaml", "config/**/*.csv", "report.html")
LEFT_OUT = ["checkpoint-*", "*.safetensors", "*.bin", "*.pt", "*.parquet", "*.gz", ".*", "local*"]
"""Weights, packed files (secrets in them cannot be seen), hidden files."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("--out", metavar="FILE.zip", type=Path, required=True)


def archive(options: argparse.Namespace) -> int:
    """Write the archive, and print its size and what was left out; return the exit code."""
    if options.out.suffix != ".zip":
        raise UsageError(f"--out {options.out}: not allowed; the name of an archive ends in .zip")
    studies = (file.parent.name for file in Path(paths.RESULTS).glob("*/results.csv"))
    plans = [read_plan(Path(paths.STUDY_PLAN.format(study=study))) for study in studies]
    if not plans:
        command = command_text("report")
        raise ExpectedError(f"{paths.RESULTS}/ has no study; first call `{command}`")
    mask = Masker()
    digests: dict[Path, str] = {}  # as archived, without secrets
    left_out = []
    with (
        atomic_path(options.out) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as file,
    ):
        for path in files_of(plans):
            content = path.read_bytes()
            text = content.decode("utf-8", "surrogateescape")
            clean = mask(hide_secrets(text)).encode("utf-8", "surrogateescape")
            if clean != content and b"\0" in content:
                left_out.append(path)
                continue
            if path.name == paths.OUTCOME_NAME:
                clean = archived_outcome(clean, path.parent, digests)
            file.writestr(str(path), clean)
            digests[path] = sha256(clean).hexdigest()
        lines = (f"{digest}  {path}\n" for path, digest in digests.items())
        file.writestr(paths.CHECKSUMS, "".join(lines))
    size = size_text(options.out.stat().st_size)
    print(f"{options.out}: {counted(len(digests), 'file')}, {size}")
    print(f"SHA-256 {digest_file(options.out)}")
    for path in left_out:
        print(f"left out: {path} has secrets, and is not text")
    return 0


def files_of(plans: Sequence[StudyPlan]) -> list[Path]:
    """The files of an archive; the outcomes, which have the digests of other files, are last."""
    files = {path for pattern in PARTS for path in Path().glob(pattern)}
    for plan in plans:
        if plan.data_report:
            report = Path(plan.data_report)
            files |= {report, report.with_name("manifest.json")}
    # The report's runs; the plan may have the next attempt of a run already.
    for file in Path(paths.RESULTS).glob(f"*/*/{RECORDS_NAME}"):
        for record in read_records(file.parents[1], file.parent.name):
            if record.status != "missing":
                files |= set(Path(record.folder).rglob("*"))
    archived = [
        path
        for path in files
        if path.is_file()
        and not any(fnmatch(name, pattern) for name in path.parts for pattern in LEFT_OUT)
    ]
    return sorted(archived, key=lambda path: (path.name == paths.OUTCOME_NAME, path))


def archived_outcome(outcome: bytes, run: Path, digests: Mapping[Path, str]) -> bytes:
    """A run's outcome with the digests of its files in the archive. A digest that is wrong here
    stays wrong there: the file was changed after the run."""
    document = json.loads(outcome)
    files = {}
    for name, digest in document.get("files", {}).items():
        file = run / name
        if file in digests and digest == digest_file(file):
            files[name] = digests[file]
        elif file in digests or not file.is_file():  # others, such as weights, stay here
            files[name] = digest
    document["files"] = files
    return (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
