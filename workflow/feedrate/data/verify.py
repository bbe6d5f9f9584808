"""Verification: every image opened in a process of its own kind, and stored or left out."""

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from feedrate.data.isolate import Lost, run_isolated
from feedrate.data.manifest import IMAGES
from feedrate.data.picture import BadImage, read_picture
from feedrate.data.raw import MAX_FILE_BYTES, RawFile

TIMEOUT_S = 60.0
"""A good image of the largest size allowed takes about a second."""


class Stored(NamedTuple):
    """A verified image, as it lies in prepared/."""

    path: str
    sha256: str
    size: int
    width: int
    height: int
    mode: str
    format: str
    changes: tuple[str, ...]
    edited: bool
    """It is not the file that was fetched."""


class Rejected(NamedTuple):
    """An image that is left out, and why."""

    reason: str


class _Task(NamedTuple):
    root: Path
    file: RawFile
    prepared: Path


def verify_images(
    root: Path, files: Iterable[RawFile], prepared: Path, workers: int, timeout_s: float = TIMEOUT_S
) -> dict[str, Stored | Rejected]:
    """Check every file under `root` and store the good ones under prepared/images/.

    By path as fetched. Raises OSError where storing fails (a full disk).
    """
    tasks = [_Task(root, file, prepared) for file in files]
    verdicts = run_isolated(_verify, tasks, workers, timeout_s)
    return {
        task.file.path: Rejected(verdict.reason) if isinstance(verdict, Lost) else verdict
        for task, verdict in zip(tasks, verdicts, strict=True)
    }


def _verify(task: _Task) -> Stored | Rejected:
    try:
        data = read_regular(task.root / task.file.path)
        picture = read_picture(data, task.file.path)
    except BadImage as reason:
        return Rejected(str(reason))
    sha256 = hashlib.sha256(picture.data).hexdigest()
    path = f"{IMAGES}/{sha256[:2]}/{sha256[:16]}.jpg"
    _store(task.prepared / path, picture.data)
    edited = hashlib.sha256(data).hexdigest() != task.file.sha256
    return Stored(path, sha256, len(picture.data), *picture[1:], edited)


def read_regular(path: Path) -> bytes:
    """The bytes of a regular file of bounded size.

    Raises BadImage for anything else; a pipe or a device is not opened, so none can block.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise BadImage("not a regular file")
        if status.st_size > MAX_FILE_BYTES:
            raise BadImage(f"larger than {MAX_FILE_BYTES // 2**20} MiB")
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
            return stream.read(MAX_FILE_BYTES)
    except FileNotFoundError:
        raise BadImage("missing file") from None
    except (OSError, RuntimeError) as error:
        raise BadImage(getattr(error, "strerror", None) or str(error)) from None


def _store(path: Path, data: bytes) -> None:
    """Write whole files only: two workers may store the same picture at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(data)
    temporary.replace(path)
