"""A vendor's software on this machine, for devices whose entry names no software of their own.

A kind may declare three constants:

VENDOR_MODULE        module that the vendor's software brings; the kind's jobs cannot run without it
VENDOR_INTERPRETERS  interpreters that usually have it, in the order of search
VENDOR_PROFILE       shell file that sets the software's environment variables in login shells
"""

import contextlib
import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from feedrate.config.spec import KINDS, RunSpec, Software
from feedrate.core import plugins, variables
from feedrate.core.processes import NO_ANSWER, ask
from feedrate.devices.base import DeviceError

ASK_S = 30
"""Time limit of an interpreter, or of a profile file, s."""
_ASK = """
import importlib.util, sys
sys.exit(sys.version_info < (3, 11) or importlib.util.find_spec(sys.argv[1]) is None)
"""


def with_interpreter(spec: RunSpec, environment: Mapping[str, str]) -> RunSpec:
    """The spec with an interpreter that has the vendor's software: the user's choice, or the first
    of the usual ones with a Python that is new enough. Unchanged if the kind needs none, if the
    device's entry names its software, or if the user names no interpreter and this one has it.
    Raises DeviceError if no interpreter here has it."""
    module = plugins.declared(KINDS, "VENDOR_MODULE").get(spec.kind)
    chosen = environment.get(variables.PYTHON)
    if module is None or spec.software != Software(environment=spec.software.environment):
        return spec
    if not chosen and importlib.util.find_spec(module):
        return spec
    tried = [chosen] if chosen else []
    usual = () if chosen else plugins.declared(KINDS, "VENDOR_INTERPRETERS").get(spec.kind, ())
    for place in usual:
        folder, _, rest = place.partition("/")
        start = environment.get(folder[1:], "") if folder.startswith("$") else folder
        path = os.path.expanduser(f"{start}/{rest}")  # noqa: PTH111  # keeps a leading `/`
        if (start or not folder) and os.access(path, os.X_OK):
            tried.append(path)
    for python in tried:
        with contextlib.suppress(*NO_ANSWER):
            if ask([python, "-c", _ASK, module], ASK_S, environment).returncode == 0:
                software = msgspec.structs.replace(spec.software, python=python)
                return msgspec.structs.replace(spec, software=software)
    raise DeviceError(
        f"no Python of at least 3.11 here has {module} (tried: {', '.join(tried) or 'none'}); name "
        f"one in config/devices.yaml, under {spec.device}: `software: {{python: /path/to/python}}`,"
        f" or in the environment variable {variables.PYTHON}"
    )


def with_profile(spec: RunSpec, environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` with what the vendor's profile file adds. It takes no variable away, and of
    those that are set it only extends lists such as PATH. A container and a login shell, which
    loads modules, bring these variables themselves."""
    made = dict(environment)
    file = plugins.declared(KINDS, "VENDOR_PROFILE").get(spec.kind, "")
    if not Path(file).is_file() or spec.software.container or spec.software.modules:
        return made
    shell = shutil.which("bash") or "/bin/sh"
    command = [shell, "-c", '. "$0" >/dev/null 2>&1; exec env -0', file]
    try:
        told = ask(command, ASK_S, made).stdout
    except NO_ANSWER:
        return made
    found = dict(entry.split("=", 1) for entry in told.split("\0") if "=" in entry)
    for name in ("_", "SHLVL", "PWD", "OLDPWD"):
        found.pop(name, None)
    return made | {n: v for n, v in found.items() if n not in made or made[n] in v}
