"""`python -m feedrate.data.fetch_checkpoint`: bring a hub checkpoint here, at one revision.

Weights (safetensors alone), configuration and tokenizer go into the folder of fetched.json, which
comes last and has a checksum for each. Training jobs start from there, and need no network.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from feedrate.core.files import digest_file, replaced_folder, write_json
from feedrate.data.manifest import PATTERNS, DataError, run_command
from feedrate.data.sources.hub import download


def fetch_checkpoint(name: str, revision: str, out: Path) -> int:
    """Bring a checkpoint into the folder of `out`; how many files that are.

    Raises DataError, in a sentence, where it cannot be had or has no safetensors weights.
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
    return len(files)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="feedrate.data.fetch_checkpoint", description=__doc__)
    parser.add_argument("--name", required=True, help="repository on the hub")
    parser.add_argument("--revision", required=True, help="commit, tag or branch")
    parser.add_argument("--out", required=True, type=Path, help="fetched.json")
    options = parser.parse_args(arguments)

    def work() -> str:
        count = fetch_checkpoint(options.name, options.revision, options.out)
        return f"fetched {options.name} at {options.revision}: {count} files"

    return run_command(parser.prog, work, options.out)


def _place(file: Path, place: Path) -> None:
    """Put a file of the cache in its place, as a link where one file system has both."""
    try:
        os.link(file, place)
    except OSError:
        shutil.copyfile(file, place)


if __name__ == "__main__":
    sys.exit(main())
