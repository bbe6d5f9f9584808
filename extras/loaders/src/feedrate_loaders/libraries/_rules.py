"""What planning checks of a loader library: its settings, and the packages that it needs."""

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from ctypes.util import find_library
from functools import cache
from importlib import metadata

from feedrate.config.settings import LoaderSettings
from feedrate.config.spec import LIBRARIES, library_of
from feedrate.core import plugins


@cache
def missing_packages(library: str, form: str = "same") -> str:
    """Why a form of a loader library cannot be used here, and the command that installs what is
    missing; empty: it can."""
    packages = plugins.declared(LIBRARIES, "PACKAGES").get(library, ())
    missing = [name for name in packages if not any(metadata.distributions(name=name))]
    system, commands = [], []
    if missing:
        system += plugins.declared(LIBRARIES, "SYSTEM_PACKAGES").get(library, ())
        command = f"pip install {' '.join(packages)}"
        commands = [plugins.declared(LIBRARIES, "INSTALL").get(library, command)]
    loads = plugins.declared(LIBRARIES, "LOADS").get(library, {})
    if form in loads and not _is_installed(*loads[form][1:]):
        package, name, least, most = loads[form]
        missing.append(f"{package} (lib{name}.so.{least} to {most})")
        system.append(package)
    if system:
        commands.insert(0, f"apt-get install {' '.join(system)}")
    what = f"loader.library: {library} needs {' and '.join(missing)}, not installed here"
    return f"{what}; install: {' && '.join(commands)}" if missing else ""


def _is_installed(name: str, least: int, most: int) -> bool:
    """Whether the system has a shared library in one of these versions."""
    files = [f"lib{name}.so.{version}" for version in range(least, most + 1)]
    if find_library(name) in files:  # to load it takes longer
        return True
    for file in files:
        with suppress(OSError):
            ctypes.CDLL(file)
            return True
    return False


def library_faults(loader: LoaderSettings) -> Iterator[str]:
    """Settings that the loader library does not have, with what is allowed instead."""
    library, best = library_of(loader), loader.form == "best"
    forms = plugins.declared(LIBRARIES, "FORMS")[library]
    form = "best" if best else "same"
    if form not in forms:
        other = "leave it out" if best else "set loader.form: best"
        yield f"loader.form: {library} does not have the form {form}; {other}"
    least = plugins.declared(LIBRARIES, "LEAST_WORKERS").get(library, 0)
    if loader.workers < least:
        yield f"loader.workers: {loader.workers}: {library} takes {least} or more"
    if library in plugins.declared(LIBRARIES, "OWN_ORDER") and loader.last_batch != "drop":
        yield f"loader.last_batch: {loader.last_batch}: {library} has its own order; use drop"
    allowed = forms.get(form, ("host",))
    if loader.decode not in allowed:
        yield f"loader.decode: {loader.decode}: with {library} use {' or '.join(allowed)}"
    if loader.scaled_decode and "reference" not in allowed:
        yield f"loader.scaled_decode: {library} does not scale; leave it out"
