"""The folders that a call writes to: the project's, and one for the caches of libraries.

In a container the user may have no entry in /etc/passwd and no home, and elsewhere the home may be
read-only or full. Snakemake, Matplotlib and Triton then fail before they do anything.
"""

import getpass
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from feedrate.core import paths, variables
from feedrate.core.errors import ExpectedError, explain

OWN = Path(".snakemake/feedrate.home")
"""Where caches go if the home cannot take them."""


def settle_caches() -> None:
    """Let this process and those that it starts keep caches in the project if the user's own folder
    for them is unusable. `variables.NO_HOME` then says why."""
    try:
        getpass.getuser()
    except (KeyError, OSError):  # libraries name files after the user
        os.environ["LOGNAME"] = str(os.getuid())
    home = paths.expand("~")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    why = f"user {os.getuid()} has no home"
    if cache.is_absolute():
        why = write_fault(cache / "snakemake")
    if not why:
        return
    own = str(OWN.resolve())
    if write_fault(OWN):  # Snakemake must come so far that `check_project` can say why
        with suppress(OSError):
            own = tempfile.mkdtemp(prefix="feedrate.")
    if not home.is_absolute():
        os.environ["HOME"] = own
    if (cache / "huggingface").is_dir():  # data and a token may be there
        os.environ.setdefault("HF_HOME", str(cache / "huggingface"))
    os.environ |= dict.fromkeys(("XDG_CACHE_HOME", "MPLCONFIGDIR", "TRITON_HOME"), own)
    os.environ[variables.NO_HOME] = why


def check_project(root: Path) -> None:
    """Raise ExpectedError if the workflow cannot run in the project's folder; after its last colon
    the message says what to do."""
    root = root.resolve()
    if any(brace in str(root) for brace in "{}"):
        raise ExpectedError(f"Snakemake takes the braces in {root} for wildcards: rename it")
    if why := write_fault(root / ".snakemake"):
        if not why.startswith("the disk is full"):
            why = f"{why}: clone the project to where user {getpass.getuser()} may write"
        raise ExpectedError(why)


def write_fault(folder: Path) -> str:
    """Why nothing can be written to a folder, which is made if it is absent; empty if it can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(b"1")
    except OSError as error:
        return explain(OSError(error.errno, error.strerror), folder)
    return ""
