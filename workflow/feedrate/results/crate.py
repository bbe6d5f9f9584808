"""Archives of a campaign: RO-Crates in a zip file, written by `archive` and read without trust.

An archive holds the run folders and all that was made from them, at the paths that they had; the
checked configuration (PROJECT); the packages (ENVIRONMENT); a description of all files as JSON-LD
(METADATA); and a SHA-256 of each file (CHECKSUMS). https://w3id.org/ro/crate/1.1
"""

import hashlib
import json
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from feedrate.core.errors import ExpectedError
from feedrate.core.paths import LOGS, RESULTS

METADATA, CHECKSUMS = "ro-crate-metadata.json", "checksums.sha256"
PROJECT, ENVIRONMENT = "project.json", "environment.json"
CRATE = "https://w3id.org/ro/crate/1.1"
TOP_FILES = {METADATA, CHECKSUMS, PROJECT, ENVIRONMENT, "report.html"}  # earlier versions packed it
TOP_FOLDERS = {RESULTS, LOGS, "config", "resources"}
"""Nothing else is unpacked: a file such as matplotlibrc would be read where pages are drawn."""
MOST_BYTES, MOST_FILES = 64 * 2**30, 1_000_000
"""Larger archives are not unpacked."""
MOST_RATIO, RATIO_FROM_BYTES = 500, 2**20
"""A file this large that shrinks to less than 1/500 was made to fill a disk; our logs shrink to
1/5 to 1/50."""
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)
_TYPES = {
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".csv": "text/csv",
    ".parquet": "application/vnd.apache.parquet",
    ".html": "text/html",
    ".svg": "image/svg+xml",
    ".yaml": "application/yaml",
    ".log": "text/plain",
    ".tsv": "text/tab-separated-values",
    ".md": "text/markdown",
    ".gz": "application/gzip",
}


class ArchiveError(ExpectedError, ValueError):
    """A file that is no archive of a campaign, or one that is not safe to unpack."""


class Writer:
    """Writes an archive to a temporary path: only `finish` makes an archive of it. Equal files give
    equal bytes."""

    def __init__(self, path: Path) -> None:
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self._files: dict[str, tuple[str, int]] = {}

    def add(self, name: str, content: bytes) -> None:
        """Add a file."""
        self._files[name] = hashlib.sha256(content).hexdigest(), len(content)
        entry = zipfile.ZipInfo(name)  # dated 1980
        entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
        entry.external_attr = (stat.S_IFREG | 0o644) << 16
        self._zip.writestr(entry, content)

    def finish(self, root: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> None:
        """Add the description and the checksums: `root` are the properties of the whole, `others`
        further entities that these refer to."""
        entities = [
            {
                "@id": quote(name, safe="/~=,:@+"),
                "@type": "File",
                "name": name,
                "contentSize": str(size),
                "sha256": digest,
                "encodingFormat": _TYPES.get(Path(name).suffix, "application/octet-stream"),
            }
            for name, (digest, size) in sorted(self._files.items())
        ]
        sums = {"@id": CHECKSUMS, "@type": "File", "encodingFormat": "text/plain"}
        entities.append(sums | {"name": "SHA-256 of all files"})
        parts = [{"@id": entity["@id"]} for entity in entities]
        about = {"@id": METADATA, "@type": "CreativeWork", "conformsTo": {"@id": CRATE}}
        whole = {"@id": "./", "@type": "Dataset", **root, "hasPart": parts}
        graph = [about | {"about": {"@id": "./"}}, whole, *others, *entities]
        described = {"@context": f"{CRATE}/context", "@graph": graph}
        self.add(METADATA, (json.dumps(described, indent=1, ensure_ascii=False) + "\n").encode())
        lines = [f"{digest}  {name}\n" for name, (digest, _) in sorted(self._files.items())]
        self.add(CHECKSUMS, "".join(lines).encode())
        self._zip.close()


def defects(archive: Path) -> Iterator[str]:
    """A sentence for each file that is missing, altered or extra. Raises ArchiveError if the file
    is no archive or not safe to unpack."""
    with _opened(archive) as found:
        names = {entry.filename for entry in found.infolist()}
        listed = _checksums(found, archive)
        for name in sorted(listed.keys() - names):
            yield f"{name} is missing: it is listed in {CHECKSUMS}."
        for name in sorted(names - listed.keys() - {CHECKSUMS}):
            yield f"{name} is extra: it is not listed in {CHECKSUMS}."
        for name in sorted(names & listed.keys()):
            try:
                with found.open(name) as stream:
                    digest = hashlib.file_digest(stream, "sha256")  # type: ignore[arg-type]
            except _DAMAGED as error:
                yield f"{name} is damaged: {error}."
                continue
            if digest.hexdigest() != listed[name]:
                yield f"{name} was altered: its SHA-256 is not that in {CHECKSUMS}."


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive into an empty folder. Nothing leaves the folder, and nothing in it is run.
    Raises ArchiveError."""
    with _opened(archive) as found:
        try:
            found.extractall(folder)
        except (*_DAMAGED, FileExistsError, IsADirectoryError) as error:
            raise ArchiveError(f"{archive}: damaged: {error}") from None


@contextmanager
def results_of(place: Path) -> Iterator[Path]:
    """The folder with the files of `place`: itself, or for an archive a temporary copy of its
    content, with the run folders in its `results/`. Raises ArchiveError."""
    if place.suffix != ".zip":
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="feedrate-") as folder:
        unpack(place, Path(folder))
        if not (Path(folder) / RESULTS).is_dir():
            raise ArchiveError(f"{place}: there are no results in it")
        yield Path(folder)


@contextmanager
def _opened(archive: Path) -> Iterator[zipfile.ZipFile]:
    """The zip file, once its list of files is known to be harmless."""
    try:
        found = zipfile.ZipFile(archive)
    except FileNotFoundError:
        raise ArchiveError(f"{archive}: there is no such file") from None
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise ArchiveError(f"{archive}: not a zip file: {error}") from None
    with found:
        if fault := _danger(found.infolist()):
            raise ArchiveError(f"{archive}: not unpacked: {fault}")
        yield found


def _danger(entries: list[zipfile.ZipInfo]) -> str:
    """Why a list of files is not safe to unpack; empty if it is."""
    if len(entries) > MOST_FILES:
        return f"{len(entries)} files; at most {MOST_FILES} are allowed"
    if (size := sum(entry.file_size for entry in entries)) > MOST_BYTES:
        return f"{size / 2**30:.0f} GiB unpacked; at most {MOST_BYTES / 2**30:.0f} are allowed"
    seen: set[str] = set()
    for entry in entries:
        name = entry.filename
        kind = stat.S_IFMT(entry.external_attr >> 16)
        parts = PurePosixPath(name).parts
        if name in seen:
            return f"{name!r} occurs in it twice"
        if name not in TOP_FILES and (name != "/".join(parts) or parts[0] not in TOP_FOLDERS):
            return f"{name!r} is not a file of a campaign"
        if ".." in parts or set(name) & {"\\", ":", "\0"}:
            return f"{name!r} is not allowed as a file's path"
        if kind not in (0, stat.S_IFREG) or entry.flag_bits & 1:
            return f"{name!r} is not a regular file"
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            return f"{name!r} is packed by another method than Deflate"
        if entry.file_size > max(RATIO_FROM_BYTES, MOST_RATIO * entry.compress_size):
            return f"{name!r} would grow to more than {MOST_RATIO} times its size"
        seen.add(name)
    return ""


def _checksums(found: zipfile.ZipFile, archive: Path) -> dict[str, str]:
    try:
        pairs = (line.split("  ", 1) for line in found.read(CHECKSUMS).decode().splitlines())
        return {name: digest for digest, name in pairs}
    except KeyError:
        fault = f"not an archive of a campaign: it has no {CHECKSUMS}"
        raise ArchiveError(f"{archive}: {fault}") from None
    except (*_DAMAGED, ValueError) as error:
        raise ArchiveError(f"{archive}: {CHECKSUMS} is damaged: {error}") from None
