"""Reading files as a storage of `loader.storage` gives them: from memory, from the disk, or late.

`cold` asks the kernel to drop a file's pages before each read (posix_fadvise). A file system may
ignore that; mincore tells, and the run ends with the reason.
"""

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path
from time import sleep

import numpy as np
from msgspec import UNSET

from feedrate.config.settings import Storage
from feedrate.core.errors import tell
from feedrate.devices.base import UnsupportedError
from feedrate.loading.stages import span

TOLERATED = 0.01
"""Share of the files' pages that may be where they should not be."""


def fetch(path: Path, storage: Storage = UNSET) -> bytes:
    """A file's bytes, in two stages: `open`, with planted latency, and `read`. Raises OSError."""
    with span("open"):
        if isinstance(storage, float):
            sleep(storage / 1000)
        stream = path.open("rb", buffering=0)
    with stream:
        if storage == "cold":  # outside of the stages: only this benchmark does it
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with span("read"):
            return stream.read()


def settle(paths: Iterable[Path], storage: Storage) -> None:
    """Bring all files into memory (`warm`) or out of it (`cold`). Raises UnsupportedError if that
    fails, because of the file system or the size of the memory."""
    if storage not in ("warm", "cold"):
        return
    files, bring = sorted(set(paths)), Path.read_bytes if storage == "warm" else _drop
    for path in files:
        bring(path)
    if not all(os.access(path, os.W_OK) for path in files):
        # The kernel tells others nothing about a file's pages.
        tell("feedrate.loading", f"loader.storage: {storage} is not checked: no right to write")
        return
    inside = sum(map(resident_bytes, files)) / max(1, sum(path.stat().st_size for path in files))
    if abs(inside - (storage == "warm")) > TOLERATED:
        other = "cold, or leave it out" if storage == "warm" else "another disk, or ms of latency"
        raise UnsupportedError(
            f"loader.storage: {storage}: memory holds {inside:.0%} of the pictures in "
            f"{files[0].parent}; use {other}"
        )


def resident_bytes(path: Path) -> int:
    """Bytes of a file that are in the page cache, by mincore(2). For one that the process may not
    write to, the kernel says that all are."""
    size = path.stat().st_size
    if not size:
        return 0
    mapped = np.memmap(path, mode="r")
    pages = np.zeros(-(-size // os.sysconf("SC_PAGESIZE")), np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mincore(mapped.ctypes, ctypes.c_size_t(size), pages.ctypes):
        raise OSError(ctypes.get_errno(), f"mincore failed on {path}")
    return min(size, int((pages & 1).sum()) * os.sysconf("SC_PAGESIZE"))


def _drop(path: Path) -> None:
    with path.open("rb") as stream:
        os.fdatasync(stream.fileno())  # pages that are not yet on the disk stay in memory
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
