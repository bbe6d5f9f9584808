"""Writing files and folders that no reader sees half-written, and digests of contents."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path in the same folder, which replaces `path` in one step on success."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp lets only the owner read. The umask can be asked for only by setting it.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path | str, text: str) -> None:
    """Write `text` as UTF-8, so that readers see either the old file or the whole new one."""
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())  # else a host that crashes may keep the rename and lose the text


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` as indented JSON with sorted keys, atomically."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def digest_text(text: str) -> str:
    """SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def digest_value(value: Any) -> str:
    """SHA-256 of a value's JSON, whatever the order of its keys. Raises ValueError for NaN."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return digest_text(text)


def digest_file(path: Path | str) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def replaced_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder next to `target`, and replace `target` with it on success. Any error or
    crash leaves `target` as it was; the next call removes the folders that a crash leaves."""
    part = target.with_name(f".{target.name}.part")
    old = target.with_name(f".{target.name}.old")

    def restore() -> None:
        if old.exists() and not target.exists():  # a crash between the two renames below
            old.rename(target)
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)

    restore()
    part.mkdir(parents=True)
    try:
        yield part
        if target.exists():
            target.rename(old)  # rename(2) replaces no folder that has files
        part.rename(target)
    finally:
        restore()


def end_of_file(path: Path) -> str:
    """The last 20 kB of a log. Raises OSError."""
    with path.open("rb") as stream:
        stream.seek(max(path.stat().st_size - 20_000, 0))
        return stream.read().decode(errors="replace")
