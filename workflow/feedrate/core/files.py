"""Writing files and folders that no reader sees half-written, digests of contents, and folders that
must take files: the project's, and one for the caches of libraries."""

import getpass
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from feedrate.core import paths
from feedrate.core.errors import ExpectedError, explain

CACHES = Path(".snakemake/feedrate.home")  # where caches go if the home cannot take them


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
    options: Any = {"sort_keys": True, "separators": (",", ":"), "ensure_ascii": False}
    return digest_text(json.dumps(value, allow_nan=False, **options))


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


def settle_caches() -> None:
    """Let this process and those that it starts keep caches in the project if the user's own folder
    for them is unusable: in a container the user may have no entry in /etc/passwd and no home, and
    elsewhere the home may be read-only or full. Snakemake, Matplotlib and Triton then fail before
    they do anything."""
    try:
        getpass.getuser()
    except (KeyError, OSError):  # libraries name files after the user
        os.environ["LOGNAME"] = str(os.getuid())
    home = paths.expand("~")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    if cache.is_absolute() and not write_fault(cache / "snakemake"):
        return
    instead = str(CACHES.resolve())
    if write_fault(CACHES):  # Snakemake must come so far that `check_project` can say why
        with suppress(OSError):
            instead = tempfile.mkdtemp(prefix="feedrate.")
    if not home.is_absolute():
        os.environ["HOME"] = instead
    if (cache / "huggingface").is_dir():  # data and a token may be there
        os.environ.setdefault("HF_HOME", str(cache / "huggingface"))
    os.environ |= dict.fromkeys(("XDG_CACHE_HOME", "MPLCONFIGDIR", "TRITON_HOME"), instead)


def check_project(root: Path) -> None:
    """Raise ExpectedError if the workflow cannot run in the project's folder; after its last colon
    the message says what to do."""
    root = root.resolve()
    if any(brace in str(root) for brace in "{}"):
        raise ExpectedError(f"Snakemake takes the braces in {root} for wildcards: rename it")
    if fault := write_fault(root / ".snakemake"):
        if not fault.startswith("the disk is full"):
            fault = f"{fault}: clone the project to where user {getpass.getuser()} may write"
        raise ExpectedError(fault)


def write_fault(folder: Path) -> str:
    """Why nothing can be written to a folder, which is made if it is absent; empty if it can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(b"1")
    except OSError as error:
        return explain(OSError(error.errno, error.strerror), folder)
    return ""
