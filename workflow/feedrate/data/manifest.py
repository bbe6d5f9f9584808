"""What a prepared dataset is: the manifest that the training job checks before it starts."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from feedrate.config.base import Strict
from feedrate.files import digest_file

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


class DataError(Exception):
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
