"""The files that describe a dataset: raw/index.json as fetched, prepared/manifest.json to train on.

Each is written last, so its presence means that its folder is complete.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from feedrate.config.values import Strict
from feedrate.core.errors import ExpectedError
from feedrate.core.files import digest_file

Document = TypeVar("Document")

RAW_SCHEMA = 1
MANIFEST_SCHEMA = 1
SPLITS = ("train", "validation", "test")

ROWS = "rows.parquet"
"""In raw/: the rows as fetched."""

MANIFEST = "manifest.json"
SAMPLES = "samples.parquet"
IMAGES = "images"
TOKENIZER = "tokenizer"
CHECKSUMS = "checksums.json"
REPORT = "data_report.json"
"""In prepared/."""

CAPTION = "caption"
"""The column of samples.parquet with a row's text."""

MAX_FILE_BYTES = 256 * 2**20
"""A larger image file is left out unread."""


class DataError(ExpectedError):
    """The data cannot be used; the message says why and what to do."""


class RawFile(Strict, frozen=True, kw_only=True):
    """One fetched file."""

    path: Annotated[str, Meta(description="Under the index's root.")]
    size: Annotated[int, Meta(description="Bytes.")]
    sha256: str


class LeftOut(Strict, frozen=True, kw_only=True):
    """Something that did not become a sample, and why."""

    path: Annotated[str, Meta(description="The image, or the table and row.")]
    reason: str
    rows: Annotated[int, Meta(description="Rows that are lost by it.")] = 1


class Fetched(Strict, frozen=True, kw_only=True):
    """What a source provides: rows whose `image` is a path under `root`, and those images."""

    rows: list[dict[str, Any]]
    files: list[RawFile]
    left_out: list[LeftOut]
    root: str = ""
    revision: str | None = None


class RawIndex(Strict, frozen=True, kw_only=True):
    """raw/index.json."""

    schema: int = RAW_SCHEMA
    dataset: str
    source: Annotated[str, Meta(description="generated, folder or hub.")]
    root: Annotated[
        str, Meta(description="Absolute folder of the images; empty: the index's own folder.")
    ] = ""
    revision: Annotated[str | None, Meta(description="The hub's commit.")] = None
    rows: Annotated[RawFile, Meta(description="The rows, in the index's folder.")]
    files: Annotated[list[RawFile], Meta(description="Every image that a row names, once.")]
    left_out: list[LeftOut]


class SplitCount(Strict, kw_only=True):
    """Counts of one split."""

    rows: int
    images: int


class Manifest(Strict, kw_only=True):
    """prepared/manifest.json: small, and the same for the same data, whenever and wherever."""

    schema: int = MANIFEST_SCHEMA
    dataset: str
    splits: dict[str, SplitCount]
    files: Annotated[
        dict[str, str],
        Meta(description="SHA-256 of each file that training reads, except the images."),
    ]
    images: Annotated[int, Meta(description="Image files in images/.")]
    images_bytes: int
    images_digest: Annotated[
        str, Meta(description="SHA-256 over the sorted `path sha256` lines of all images.")
    ]


def read_index(path: Path) -> RawIndex:
    """Read raw/index.json. Raises DataError if it is missing or not an index."""
    return read_document(path, RawIndex, "the dataset has not been fetched")


def read_manifest(path: Path) -> Manifest:
    """Read prepared/manifest.json. Raises DataError if it is missing or not a manifest."""
    return read_document(path, Manifest, "the dataset has not been prepared")


def read_document(path: Path, kind: type[Document], missing: str) -> Document:
    """Read a JSON file of type `kind`; `missing` says what to conclude if there is none.

    Raises DataError if the file is missing or not of this version.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; {missing}") from None
    except ValueError as error:
        raise DataError(
            f"{path}: not of this version ({error}): delete the folder {path.parent} and run again"
        ) from None


def images_digest(sha256: Mapping[str, str]) -> str:
    """SHA-256 over the sorted `path sha256` lines; `sha256` by path."""
    lines = "".join(f"{path} {digest}\n" for path, digest in sorted(sha256.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def check_prepared(folder: Path) -> Manifest:
    """Compare every file of a prepared dataset with its manifest: number, size and SHA-256.

    Raises DataError that names the first file that differs and says what to do.
    """
    manifest = read_manifest(folder / MANIFEST)
    for name, sha256 in manifest.files.items():
        check_file(folder, name, sha256)
    listed: dict[str, dict[str, Any]] = json.loads((folder / CHECKSUMS).read_text("utf-8"))
    digest = images_digest({path: entry["sha256"] for path, entry in listed.items()})
    found = len(listed), sum(entry["size"] for entry in listed.values()), digest
    if found != (manifest.images, manifest.images_bytes, manifest.images_digest):
        raise _different(folder, CHECKSUMS, "does not match the manifest")
    for name, entry in sorted(listed.items()):
        check_file(folder, name, entry["sha256"], entry["size"])
    present = {p.relative_to(folder).as_posix() for p in (folder / IMAGES).rglob("*.jpg")}
    for name in sorted(present - listed.keys()):
        raise _different(folder, name, "is not in the manifest")
    return manifest


def check_file(folder: Path, name: str, sha256: str, size: int | None = None) -> None:
    """Compare a file of a folder with its SHA-256 and, if given, its size in bytes.

    Raises DataError that names it and says what to do.
    """
    path = folder / name
    try:
        if size is not None and path.stat().st_size != size:
            raise _different(folder, name, f"has another size than the {size} bytes recorded")
        if digest_file(path) != sha256:
            raise _different(folder, name, "has other contents than recorded")
    except OSError as error:
        raise _different(folder, name, f"cannot be read ({error.strerror})") from None


def _different(folder: Path, name: str, how: str) -> DataError:
    return DataError(f"{folder / name} {how}: delete the folder {folder} and run again")
