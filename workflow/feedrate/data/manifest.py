"""What a prepared dataset is: the manifest that the training job checks before it starts."""

import json
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from feedrate.config.base import Strict

MANIFEST_SCHEMA = 1
SPLITS = ("train", "validation", "test")


class DataError(Exception):
    """The data cannot be used; the message says why and what to do."""


class SplitCount(Strict, kw_only=True):
    """Counts of one split."""

    rows: int
    images: int


class Manifest(Strict, kw_only=True):
    """prepared/manifest.json: small, free of times and machine names, the same for the same data."""

    schema: int = MANIFEST_SCHEMA
    dataset: str
    splits: dict[str, SplitCount]
    files: Annotated[
        dict[str, str],
        Meta(description="SHA-256 of each file beside it but the images: samples.parquet, …"),
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
