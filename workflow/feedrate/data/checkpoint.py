"""Weights to start from: a checkpoint of the hub is fetched once, and checked before each use."""

import json
import os
import shutil
from pathlib import Path

from feedrate.core.files import digest_file, replaced_folder, write_json
from feedrate.data.hub import download
from feedrate.data.manifest import DataError, check_file

PATTERNS = ("*.safetensors", "*.json", "*.txt", "*.model")
"""Weights, configuration and tokenizers; never a pickle."""


def fetch_checkpoint(name: str, revision: str, out: Path) -> None:
    """Fetch the repository `name` of the hub at `revision` (a commit, tag or branch) into the
    folder of `out`, which is fetched.json.

    fetched.json is written last and holds a checksum of each file. Raises DataError if the hub
    refuses the repository or it has no safetensors weights.
    """
    advice = "set `checkpoint` to a local folder"
    source = download(f"checkpoint {name}", name, revision, PATTERNS, advice)
    files = sorted({file for pattern in PATTERNS for file in source.rglob(pattern)})
    if not any(file.suffix == ".safetensors" for file in files):
        raise DataError(
            f"checkpoint {name} at {revision} has no *.safetensors file; only safetensors are read"
        )
    with replaced_folder(out.parent) as folder:
        sha256 = {}
        for file in files:
            place = folder / file.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(file.resolve(), place)
            except OSError:  # the cache is on another file system
                shutil.copyfile(file, place)
            sha256[str(file.relative_to(source))] = digest_file(place)
        fetched = {"name": name, "revision": revision, "commit": source.name, "sha256": sha256}
        write_json(folder / out.name, fetched)
    print(f"fetched {name} at {revision}: {len(files)} files")


def check_fetched(index: Path) -> None:
    """Compare every file of a fetched checkpoint with the checksums in `index` (fetched.json).

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
