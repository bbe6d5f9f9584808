"""What a prepared dataset is: the manifest that the training job checks before it starts."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from feedrate.config.values import Strict
from feedrate.core.errors import ExpectedError
from feedrate.core.files import digest_file, write_json

MANIFEST_SCHEMA = 1
SPLITS = ("train", "validation", "test")

MANIFEST = "manifest.json"
SAMPLES = "samples.parquet"
IMAGES = "images"
TOKENIZER = "tokenizer"
CHECKSUMS = "checksums.json"
REPORT = "data_report.json"
"""What lies in prepared/."""

CAPTION = "caption"
"""The column of samples.parquet with a row's text."""


class DataError(ExpectedError):
    """The data cannot be used; the message says why and what to do."""


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
        Meta(description="SHA-256 of each file that training reads, the images aside."),
    ]
    images: Annotated[int, Meta(description="Image files in images/.")]
    images_bytes: int
    images_digest: Annotated[
        str, Meta(description="SHA-256 over the sorted `path sha256` lines of all images.")
    ]


def read_manifest(path: Path) -> Manifest:
    """Read prepared/manifest.json. Raises DataError where it is missing or not a manifest."""
    try:
        return msgspec.convert(json.loads(path.read_text(encoding="utf-8")), Manifest)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; the dataset has not been prepared") from None
    except (ValueError, msgspec.ValidationError) as error:
        raise DataError(f"{path}: not a manifest of this version ({error})") from None


def images_digest(sha256: Mapping[str, str]) -> str:
    """SHA-256 over the sorted `path sha256` lines; `sha256` by path."""
    lines = "".join(f"{path} {digest}\n" for path, digest in sorted(sha256.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def check_prepared(folder: Path) -> Manifest:
    """Hold every file of a prepared dataset against its manifest: count, size and SHA-256.

    Raises DataError that names the first file that differs and says what to do.
    """
    manifest = read_manifest(folder / MANIFEST)
    for name, sha256 in manifest.files.items():
        check_file(folder, name, sha256)
    listed: dict[str, dict[str, Any]] = json.loads((folder / CHECKSUMS).read_text("utf-8"))
    digest = images_digest({path: entry["sha256"] for path, entry in listed.items()})
    total = sum(entry["size"] for entry in listed.values())
    if (len(listed), total, digest) != (
        manifest.images,
        manifest.images_bytes,
        manifest.images_digest,
    ):
        raise _different(folder, CHECKSUMS, "does not match the manifest")
    for name, entry in sorted(listed.items()):
        check_file(folder, name, entry["sha256"], entry["size"])
    present = {p.relative_to(folder).as_posix() for p in (folder / IMAGES).rglob("*.jpg")}
    for name in sorted(present - listed.keys()):
        raise _different(folder, name, "is not in the manifest")
    return manifest


def check_file(folder: Path, name: str, sha256: str, size: int | None = None) -> None:
    """Hold one file of a folder against its SHA-256 and, where given, its size in bytes.

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


# What fetching leaves behind: raw/index.json, a checksum for every file that it tells of.

RAW_SCHEMA = 1
ROWS = "rows.parquet"
MAX_FILE_BYTES = 256 * 2**20
"""A larger file is no picture of a data set; it is left out unread."""


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


class RawIndex(Strict, frozen=True, kw_only=True):
    """raw/index.json; written last, so its presence means that fetching was complete."""

    schema: int = RAW_SCHEMA
    dataset: str
    source: Annotated[str, Meta(description="generated, folder or hub.")]
    root: Annotated[
        str, Meta(description="Absolute folder of the images; empty: the index's own folder.")
    ] = ""
    revision: Annotated[str | None, Meta(description="The hub's commit.")] = None
    rows: Annotated[RawFile, Meta(description="The rows, beside the index.")]
    files: Annotated[list[RawFile], Meta(description="Every image that a row names, once.")]
    left_out: list[LeftOut]


class Fetched(Strict, frozen=True, kw_only=True):
    """What a source gives: rows whose `image` is a path under `root`, and those images."""

    rows: list[dict[str, Any]]
    files: list[RawFile]
    left_out: list[LeftOut]
    root: str = ""
    revision: str | None = None


def write_index(path: Path, index: RawIndex) -> None:
    """Write raw/index.json."""
    write_json(path, msgspec.to_builtins(index))


def read_index(path: Path) -> RawIndex:
    """Read raw/index.json. Raises DataError where it is missing or not an index."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=RawIndex)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; the dataset has not been fetched") from None
    except (ValueError, msgspec.ValidationError) as error:
        raise DataError(f"{path}: not an index of this version ({error}); delete it") from None


def image_root(path: Path, index: RawIndex) -> Path:
    """The folder under which the images of the index at `path` lie."""
    return Path(index.root) if index.root else path.parent


# Weights to start from: which files of a checkpoint count, and whether they are as fetched.

PATTERNS = ("*.safetensors", "*.json", "*.txt", "*.model")
"""Weights, configuration and tokenizers; never a pickle."""


def check_fetched(index: Path) -> None:
    """Hold every file of a fetched checkpoint against its fetched.json.

    Raises DataError that names the first file that differs and says what to do.
    """
    try:
        sha256: dict[str, str] = dict(json.loads(index.read_text(encoding="utf-8"))["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{index}: no list of a checkpoint's files ({type(error).__name__}): delete the folder "
            f"{index.parent} and run again"
        ) from None
    for name, digest in sha256.items():
        check_file(index.parent, name, digest)
