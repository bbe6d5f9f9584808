"""The software of the training processes: interpreter, modules, variables and container.

It wraps a command, from outside in: a login bash that loads the modules, the container, the
command. Modules and images may set variables of their own. So the variables that a job needs are
set again inside them, from copies; no value appears in the list of processes.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from feedrate.config.spec import RunSpec, Software
from feedrate.core import plugins, variables
from feedrate.core.processes import die_with_parent
from feedrate.devices.base import KINDS, LAUNCHERS, DeviceError

SOURCES = Path(__file__).resolve().parents[2]
"""The folder that holds the package, which need not be installed where processes run."""

INSTALLED = SOURCES.name in ("site-packages", "dist-packages")
"""Whether that folder also holds other packages, which must not come along."""

PROBE_S = 1800
"""Time limit of the test run, s; an image may have to be fetched first."""

_SET_AGAIN = f'for n in ${variables.SET}; do eval "export $n=\\"\\${variables.SET}_$n\\""; done'
_OURS_FIRST = (
    "true"
    if INSTALLED
    else f'export PYTHONPATH={shlex.quote(str(SOURCES))}"${{PYTHONPATH:+:$PYTHONPATH}}"'
)
_NO_MODULES, _NOT_LOADED, _NOT_FOUND, _NOT_RUN, _NO_COMMAND = 91, 92, 93, 94, 127
_PROBE = (
    f'for p in "$@"; do command -v "$p" >/dev/null || {{ echo "$p" >&2; exit {_NOT_FOUND}; }}; done'
    f'; "$1" -c "import feedrate.jobs.worker" || exit {_NOT_RUN}'
)


def interpreter(software: Software) -> str:
    """The interpreter of the training processes; relative paths start at the project's root."""
    if software.python is None:
        return "python3" if software.container else sys.executable
    # Links stay: an environment is identified by the link to its interpreter.
    return _from_root(software.python) if "/" in software.python else software.python


def software_environment(
    software: Software, needed: Mapping[str, str], environment: Mapping[str, str]
) -> dict[str, str]:
    """`environment` with the variables that a job needs; those of `software` override all."""
    ours = {**needed, **software.environment}
    made = {**environment, **ours}
    if software.modules or software.container:
        made |= {f"{variables.SET}_{name}": value for name, value in ours.items()}
        made |= {variables.SET: " ".join(ours), variables.PATH: made.get("PATH", os.defpath)}
    if software.container:
        made.pop("PYTHONPATH", None)  # from outside it would override the image's
    elif software.python and not INSTALLED:
        made["PYTHONPATH"] = os.pathsep.join(filter(None, [str(SOURCES), made.get("PYTHONPATH")]))
    return made


def wrap(spec: RunSpec, command: Sequence[str], folders: Iterable[Path] = ()) -> list[str]:
    """`command` inside the modules and the container of a job, with access to `folders`."""
    software, wrapped = spec.software, list(command)
    if software.container:
        script = f'cd {shlex.quote(str(Path.cwd()))} && {_SET_AGAIN} && {_OURS_FIRST} && exec "$@"'
        wrapped = [*_apptainer(spec, folders), "sh", "-c", script, "sh", *wrapped]
    if software.modules:
        python_path = "unset PYTHONPATH" if software.container else _OURS_FIRST
        script = (
            f"type module >/dev/null 2>&1 || exit {_NO_MODULES}\n"
            f"module load {shlex.join(software.modules)} || exit {_NOT_LOADED}\n"
            f'PATH="$PATH:${variables.PATH}" && {_SET_AGAIN} && {python_path} && exec "$@"'
        )
        wrapped = ["bash", "-lc", script, "bash", *wrapped]
    return wrapped


def check_software(spec: RunSpec, environment: Mapping[str, str]) -> None:
    """Raise DeviceError if the processes of a job cannot be started here with `environment`.

    Only software other than this process's own is tested.
    """
    software = spec.software
    program = plugins.declared(LAUNCHERS, "PROGRAM").get(spec.launcher)
    needed = [interpreter(software), *([program] if program else [])]
    first = ["bash"] if software.modules else ["apptainer"] if software.container else needed
    for program in first:
        if shutil.which(program, path=environment.get("PATH")) is None:
            raise DeviceError(_absent(program))
    image = software.container
    if image and "://" not in image and not Path(_from_root(image)).exists():
        raise DeviceError(f"software.container: there is no {_from_root(image)}")
    if software.python or software.modules or image:
        _probe(spec, needed, environment)


def _probe(spec: RunSpec, needed: Sequence[str], environment: Mapping[str, str]) -> None:
    """Find the programs inside modules and container, and import the worker there."""
    try:
        answer = subprocess.run(
            wrap(spec, ["sh", "-c", _PROBE, "sh", *needed]),
            env=dict(environment),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_S,
            check=False,
            preexec_fn=die_with_parent,  # no thread of ours runs yet
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(f"software: its test run did not end: {error}") from None
    if answer.returncode:
        lines = [line.strip() for line in answer.stderr.splitlines() if line.strip()]
        raise DeviceError(_reason(spec.software, answer.returncode, (lines or ["no message"])[-1]))


def _reason(software: Software, code: int, said: str) -> str:
    """Why a test run failed."""
    load = f"`module load {' '.join(software.modules)}`"
    reasons = {
        _NO_MODULES: "software.modules: a login bash has no command `module` here",
        _NOT_LOADED: f"software.modules: {load} failed: {said}",
        _NOT_FOUND: _absent(said),
        _NOT_RUN: f"software: {interpreter(software)} cannot run the training job: {said}",
        _NO_COMMAND: _absent("apptainer"),
    }
    other = f"software: the processes cannot be started (exit code {code}): {said}"
    return reasons.get(code, other)


def _absent(program: str) -> str:
    for launcher, needed in plugins.declared(LAUNCHERS, "PROGRAM").items():
        if program == needed:
            hint = plugins.declared(LAUNCHERS, "MISSING").get(launcher, "choose another launcher")
            return f"launcher: {program} is not installed here: {hint}"
    if asks := {"bash": "modules", "apptainer": "container"}.get(program):
        return f"software.{asks}: this needs {program}, which is not on PATH here"
    return f"software.python: there is no program {program}"


def _apptainer(spec: RunSpec, folders: Iterable[Path]) -> list[str]:
    """The command that enters the container, with /dev and the folders mounted."""
    image = str(spec.software.container)
    flags = plugins.declared(KINDS, "CONTAINER_FLAGS").get(spec.kind, ())
    mounts = (f"--mount=type=bind,{_quoted('src', f)},{_quoted('dst', f)}"
              for f in _mounted(spec, folders))  # fmt: skip
    path = image if "://" in image else _from_root(image)
    return ["apptainer", "exec", *flags, *mounts, path]


def _mounted(spec: RunSpec, folders: Iterable[Path]) -> list[Path]:
    """Folders to mount: the project, the package, a local checkpoint, and `folders`."""
    checkpoint = Path(spec.settings.model.checkpoint or ".")
    own = [checkpoint] if checkpoint.is_dir() else []
    mounted: list[Path] = []
    for folder in (path.resolve() for path in (Path.cwd(), SOURCES, *own, *folders)):
        if not any(folder.is_relative_to(above) for above in mounted):
            mounted.append(folder)
    return mounted


def _quoted(key: str, folder: Path) -> str:
    """A field of --mount, quoted as CSV: a folder's name may contain a comma."""
    value = str(folder).replace('"', '""')
    return f'"{key}={value}"'


def _from_root(path: str) -> str:
    return str(Path.cwd() / Path(path).expanduser())
