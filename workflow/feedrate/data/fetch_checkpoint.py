"""Fetch a checkpoint from the hub, so that training jobs need no network.

Weights (only safetensors), configuration and tokenizer go into the folder of fetched.json, which is
written last and holds a checksum for each file.
"""

import os
import shutil
from pathlib import Path

from feedrate.core.files import digest_file, replaced_folder, write_json
from feedrate.data.manifest import PATTERNS, DataError
from feedrate.data.sources.hub import download


def fetch_checkpoint(name: str, revision: str, out: Path) -> None:
    """Fetch the repository `name` of the hub at `revision` (a commit, tag or branch) into the
    folder of `out`, which is fetched.json.

    Raises DataError if the hub refuses it or it has no safetensors weights.
    """
    advice = "set `checkpoint` to a local folder"
    source = download(f"checkpoint {name}", name, revision, PATTERNS, advice)
    files = sorted({file for pattern in PATTERNS for file in source.rglob(pattern)})
    if not any(file.suffix == ".safetensors" for file in files):
        raise DataError(
            f"checkpoint {name} at {revision} has no *.safetensors file; only safetensors are read"
        )
    with replaced_folder(out.parent) as folder:
        entries = {}
        for file in files:
            place = folder / file.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            _place(file.resolve(), place)
            entries[str(file.relative_to(source))] = digest_file(place)
        commit = source.name
        made = {"name": name, "revision": revision, "commit": commit, "sha256": entries}
        write_json(folder / out.name, made)
    print(f"fetched {name} at {revision}: {len(files)} files")


def _place(file: Path, place: Path) -> None:
    """Link a file of the cache to its place, or copy it across file systems."""
    try:
        os.link(file, place)
    except OSError:
        shutil.copyfile(file, place)
