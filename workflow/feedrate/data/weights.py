"""Weights to start from: which files of a checkpoint count, and whether they are as fetched."""

import json
from pathlib import Path

from feedrate.data.manifest import DataError, check_file

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
