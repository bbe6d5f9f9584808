"""`python -m feedrate archive`: runs, configuration, results and report as one zip file."""

import argparse
import json
import zipfile
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path

from feedrate.core import paths
from feedrate.core.errors import ExpectedError, UsageError
from feedrate.core.files import atomic_path, digest_file
from feedrate.core.scrub import scrub
from feedrate.report.text import counted

PARTS = (
    *(f"{paths.RUNS}/**/*", f"{paths.RESULTS}/**/*"),
    *("config/**/*.yaml", "config/**/*.csv", "report.html"),
    *(f"{paths.DATASETS}/*/prepared-*/{name}" for name in ("manifest.json", "data_report.json")),
)
LEFT_OUT = (
    *("checkpoint-*", "*.safetensors", "*.bin", "*.pt"),
    *("*.parquet", "*.gz", ".*", "local*"),
)
"""Weights, packed files (secrets in them cannot be seen), and the hidden folders of jobs."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("--out", metavar="FILE.zip", type=Path, required=True)


def archive(options: argparse.Namespace) -> int:
    """Write the archive, and print its size and what was left out; return the exit code."""
    if options.out.suffix != ".zip":
        raise UsageError(f"--out {options.out}: not allowed; the name of an archive ends in .zip")
    if not list(Path(paths.RUNS).glob(f"*/*/*/*/{paths.OUTCOME_NAME}")):
        raise ExpectedError(f"there is no run in {paths.RUNS}/")
    sums, left_out = [], []
    changed: dict[Path, str] = {}
    with (
        atomic_path(options.out) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as file,
    ):
        for path in _files():
            text = path.read_bytes().decode("utf-8", "surrogateescape")
            clean = scrub(text)
            if clean != text and "\0" in text:
                left_out.append(f"{path} has secrets, and is not text")
                continue
            if path.name == paths.OUTCOME_NAME:
                clean = _with_digests(clean, path.parent, changed)
            content = clean.encode("utf-8", "surrogateescape")
            digest = sha256(content).hexdigest()
            if clean != text:
                changed[path] = digest
            file.writestr(str(path), content)
            sums.append(f"{digest}  {path}\n")
        file.writestr(paths.CHECKSUMS, "".join(sums))
    size_mib = options.out.stat().st_size / 2**20
    print(f"{options.out}: {counted(len(sums), 'file')}, {size_mib:.1f} MiB")
    print(f"SHA-256 {digest_file(options.out)}")
    for line in left_out:
        print(f"left out: {line}")
    return 0


def _with_digests(outcome: str, run: Path, changed: Mapping[Path, str]) -> str:
    """An outcome with the digests of the files that were changed, or a report of the archive would
    call the run invalid."""
    own = {str(path.relative_to(run)): d for path, d in changed.items() if run in path.parents}
    if not own:
        return outcome
    content = json.loads(outcome)
    files = content.get("files", {})
    files |= {name: own[name] for name in files.keys() & own.keys()}
    return json.dumps(content, indent=2) + "\n"


def _files() -> Iterator[Path]:
    """The files of an archive; outcomes last, which have the digests of the others."""
    files = {path for pattern in PARTS for path in Path().glob(pattern) if path.is_file()}
    for path in sorted(files, key=lambda path: (path.name == paths.OUTCOME_NAME, path)):
        if not any(fnmatch(part, left_out) for part in path.parts for left_out in LEFT_OUT):
            yield path
