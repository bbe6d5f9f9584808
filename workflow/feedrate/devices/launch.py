"""How the processes of a job are started; light enough for a supervisor.

A launcher is one file in `devices/launchers/`: a function `command`, a function `variables` if it
needs environment variables, and these constants, all of which may be missing.

MAX_PROCESSES    the most processes that it can start
MAX_NODES        the most nodes that it can start them on
RANK_VARIABLES   where a process finds rank, world size, local rank and local world size
SETS             variables that it sets for its processes, which a job started inside another must
                 not inherit; names, or prefixes with a `*`
HIDES            variables that must not reach the launcher itself
PROGRAM          the program that must be installed
MISSING          what to do if PROGRAM is missing, for the error message
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from feedrate.config.spec import RunSpec
from feedrate.core import plugins
from feedrate.devices.base import KINDS, LAUNCHERS, adapter_class
from feedrate.devices.host import cores_granted
from feedrate.devices.software import check_software, interpreter, software_environment, wrap

RECORDED = ("LD_PRELOAD",)
RECORDED_PREFIXES = (
    *("OMP_", "GOMP_", "KMP_", "MKL_", "MALLOC_"),
    *("TORCH_", "PYTORCH_", "TORCHINDUCTOR_"),
)
"""Environment variables that change how fast a job runs; device kinds add their own prefixes."""


@dataclass(frozen=True)
class Launch:
    """How to start a job's processes."""

    command: list[str]
    environment: dict[str, str]


class Parts(NamedTuple):
    """A command in two parts; the device's modules and container go between them."""

    outside: list[str]
    inside: list[str]


def prepare(
    spec: RunSpec, module: Sequence[str], folders: Iterable[Path], environment: Mapping[str, str]
) -> Launch:
    """How to run `module` (a module's name and its arguments) in each of the job's processes.

    The module reads and writes `folders`. Raises DeviceError if something needed is missing.
    """
    made = launch_environment(spec, environment)
    check_software(spec, made)
    return Launch(launch_command(spec, module, folders), made)


def launch_command(spec: RunSpec, module: Sequence[str], folders: Iterable[Path] = ()) -> list[str]:
    """The command alone. Raises DeviceError if several nodes are needed and not there."""
    launcher = plugins.load(LAUNCHERS, spec.launcher)
    parts: Parts = launcher.command(spec, interpreter(spec.software), list(module))
    return [*parts.outside, *wrap(spec, parts.inside, folders)]


def launch_environment(spec: RunSpec, environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` with what a job needs, and without what other launchers left in it."""
    hidden = [name for names in plugins.declared(LAUNCHERS, "SETS").values() for name in names]
    hidden += plugins.declared(LAUNCHERS, "HIDES").get(spec.launcher, ())
    kept = {
        name: value
        for name, value in environment.items()
        if not any(fnmatchcase(name, pattern) for pattern in hidden)
    }
    ranks = spec.count // spec.nodes
    needed = {
        "OMP_NUM_THREADS": str(max(1, cores_granted() // ranks)),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        # A checkpoint without safetensors is refused, not converted by a service on the hub.
        "DISABLE_SAFETENSORS_CONVERSION": "true",
    }
    needed |= adapter_class(spec.kind).launch_variables(spec, kept)
    launcher = plugins.load(LAUNCHERS, spec.launcher)
    if hasattr(launcher, "variables"):
        needed |= launcher.variables(kept)
    return software_environment(spec.software, needed, kept)


def recorded_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that a job's speed depends on, with their values."""
    of_kinds = plugins.declared(KINDS, "RECORDED_VARIABLES").values()
    prefixes = (*RECORDED_PREFIXES, *(prefix for prefixes in of_kinds for prefix in prefixes))
    return {
        name: value
        for name, value in environment.items()
        if name in RECORDED or name.startswith(prefixes)
    }


def rank_from_environment(
    environment: Mapping[str, str] = os.environ,
) -> tuple[int, int, int, int]:
    """Rank, world size, local rank and local world size, as the launcher set them."""
    for names in plugins.declared(LAUNCHERS, "RANK_VARIABLES").values():
        if names[0] in environment:
            rank, world = (int(environment[name]) for name in names[:2])
            local = int(environment.get(names[2], rank))
            return rank, world, local, int(environment.get(names[3], world))
    return 0, 1, 0, 1
