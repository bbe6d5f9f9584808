"""What changed in files that runs rest on, since they were fetched or last used; light enough for
every plan."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

from feedrate.config.digest import DigestCache
from feedrate.data.weights import PATTERNS
from feedrate.files import digest_file, digest_value

_SHORT = 16


def edited(index_path: Path, cache: DigestCache) -> str:
    """A digest of what differs now from the fetched files, or an empty text where nothing does.

    Empty too where nothing has been fetched yet, and for a folder source, whose files are the
    user's and are watched by `folder_state`. An unchanged file costs one stat.
    """
    try:
        index = json.loads(index_path.read_text(encoding="utf-8"))
        if index["root"]:
            return ""
        listed = {entry["path"]: entry["sha256"] for entry in [index["rows"], *index["files"]]}
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    now = {path: _state(index_path.parent / path, cache) for path in listed}
    different = {path: state for path, state in now.items() if state != listed[path]}
    return digest_value(different)[:_SHORT] if different else ""


def folder_state(path: Path, cache: DigestCache) -> str:
    """A digest of the names and contents of all files under `path`, hidden ones aside, or of the
    one file that it is.

    "absent" where there is neither. Only regular files are opened.
    """
    if path.is_file():
        return _state(path, cache)[:_SHORT]
    if not path.is_dir():
        return "absent"
    files = {str(f.relative_to(path)): _state(f, cache) for f in _visible(path)}
    return digest_value(files)[:_SHORT]


def weights_state(folder: Path, cache: DigestCache) -> str:
    """A digest of the names and contents of the files in `folder` that a model is read from.

    "absent" where there is none. What is beside them, as a model's card, does not count.
    """
    files = {file for pattern in PATTERNS for file in folder.glob(pattern)}
    states = {file.name: _state(file, cache) for file in sorted(files)}
    return digest_value(states)[:_SHORT] if states else "absent"


def _visible(folder: Path) -> Iterator[Path]:
    """The files under a folder, by name; links to folders are not followed, so no loop is."""
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        if entry.is_dir() and not entry.is_symlink():
            yield from _visible(entry)
        else:
            yield entry


def _state(path: Path, cache: DigestCache) -> str:
    """The SHA-256 of a regular file, or a word for anything else."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return "special"
        return cache.digest(path, digest_file)
    except OSError as error:
        return type(error).__name__
