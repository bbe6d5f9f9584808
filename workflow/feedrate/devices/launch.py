"""How the processes of a job are started: launcher, variables, interpreter, modules, container.

A launcher is one file in `devices/launchers/`: a function `command`, which returns the launcher's
own words and those that the device's modules and container are put around; a function `variables`
if it needs environment variables; and the constants that docs/extending.md lists.

The software wraps a command, from outside in: a login bash that loads the modules, the container,
the command. Modules and images may set variables of their own. The variables that a job needs are
therefore set again inside them, from copies. No value appears in the list of processes.
"""

import importlib.util
import itertools
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from string import Template
from typing import NamedTuple

import msgspec

from feedrate.config.spec import KINDS, LAUNCHERS, RunSpec, Software
from feedrate.core import paths, plugins, variables
from feedrate.core.errors import ExpectedError, tell
from feedrate.core.files import write_json
from feedrate.core.processes import BINDING, NO_ANSWER, ask
from feedrate.devices.base import DeviceError, adapter_class
from feedrate.devices.host import cores_granted, host_lock

RECORDED_PREFIXES = (
    "OMP_", "GOMP_", "KMP_", "MKL_", "MALLOC_", "TORCH_", "PYTORCH_", "TORCHINDUCTOR_",
    "TORCHDYNAMO_", "ACCELERATE_", variables.UNSET,
)  # fmt: skip
"""Environment variables that change how fast a job runs; device kinds add their own prefixes."""

SOURCES = Path(__file__).resolve().parents[2]
"""The folder that holds the package, which need not be installed where processes run."""
INSTALLED = SOURCES.name in ("site-packages", "dist-packages")
"""Whether it also holds other packages, which processes must not import."""

PROBE_S, ASK_S = 1800, 30
"""Time limits of the test run, s (an image may have to be fetched first), and of a question."""
_HAS = """
import importlib.util, sys
sys.exit(sys.version_info < (3, 11) or importlib.util.find_spec(sys.argv[1]) is None)
"""

_SET_AGAIN = (
    f"unset {' '.join(BINDING)} && "
    f'for n in ${variables.SET}; do eval "export $n=\\"\\${variables.SET}_$n\\""; done'
)
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


class Launch(NamedTuple):
    """How to start a job's processes."""

    command: list[str]
    environment: dict[str, str]


def prepare(
    spec: RunSpec, module: Sequence[str], folders: Iterable[Path], environment: Mapping[str, str]
) -> Launch:
    """How to run `module` (its name and arguments), which reads and writes `folders`, in each of
    the job's processes. Raises DeviceError if something needed is missing."""
    spec = with_interpreter(spec, environment)
    variables_of_job = launch_environment(spec, environment)
    check_software(spec, variables_of_job)
    return Launch(launch_command(spec, module, folders), variables_of_job)


def launch_command(spec: RunSpec, module: Sequence[str], folders: Iterable[Path] = ()) -> list[str]:
    """The command of `prepare`. Raises DeviceError if this is no job with those nodes."""
    launcher = plugins.load(LAUNCHERS, spec.launcher)
    starter, command = launcher.command(spec, interpreter(spec.software), list(module))
    return [*starter, *wrap(spec, command, folders)]


def launch_environment(spec: RunSpec, environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` with the variables that a job needs, and without those of other jobs; the
    variables of the device's software take precedence."""
    hidden = list(plugins.declared(LAUNCHERS, "HIDES").get(spec.launcher, ()))
    for package in (LAUNCHERS, KINDS):
        hidden += itertools.chain.from_iterable(plugins.declared(package, "SETS").values())
    base = {n: v for n, v in environment.items() if not any(fnmatchcase(n, p) for p in hidden)}
    base = with_profile(spec, base)
    own = {
        "OMP_NUM_THREADS": str(max(1, cores_granted() // (spec.count // spec.nodes))),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
        # Refuse a checkpoint without safetensors instead of having the hub convert it.
        "DISABLE_SAFETENSORS_CONVERSION": "true",
    }
    own |= adapter_class(spec.kind).launch_variables(spec, base)
    launcher, software = plugins.load(LAUNCHERS, spec.launcher), spec.software
    if hasattr(launcher, "variables"):
        own |= launcher.variables(base)
    own |= software.environment
    result = base | own
    if software.modules or software.container:
        result |= {f"{variables.SET}_{name}": value for name, value in own.items()}
        result |= {variables.SET: " ".join(own), variables.PATH: result.get("PATH", os.defpath)}
    if software.container:
        result.pop("PYTHONPATH", None)  # from outside it would override the image's
    elif software.python and not INSTALLED:
        folders = filter(None, [str(SOURCES), result.get("PYTHONPATH")])
        result["PYTHONPATH"] = os.pathsep.join(folders)
    return result


def with_interpreter(spec: RunSpec, environment: Mapping[str, str]) -> RunSpec:
    """The spec with an interpreter that has the vendor's software: the user's choice, or the first
    of the usual ones with a Python that is new enough. Unchanged if the kind needs none, if the
    device's entry names its software, or if the user names no interpreter and this one has it.
    Raises DeviceError if no interpreter here has it."""
    module = plugins.declared(KINDS, "VENDOR_MODULE").get(spec.kind)
    if module is None or spec.software != Software(environment=spec.software.environment):
        return spec
    choice = environment.get(variables.PYTHON)
    if not choice and importlib.util.find_spec(module):
        return spec
    usual = plugins.declared(KINDS, "VENDOR_INTERPRETERS").get(spec.kind, ())
    expanded = [str(paths.expand(Template(path).safe_substitute(environment))) for path in usual]
    candidates = [choice] if choice else [path for path in expanded if os.access(path, os.X_OK)]
    for python in candidates:
        with suppress(*NO_ANSWER):
            if ask([python, "-c", _HAS, module], ASK_S, environment).returncode == 0:
                software = msgspec.structs.replace(spec.software, python=python)
                return msgspec.structs.replace(spec, software=software)
    raise DeviceError(
        f"no Python of at least 3.11 here has {module} (tried: {', '.join(candidates) or 'none'}); "
        f"name one in config/devices.yaml, under {spec.device}: `software: {{python: "
        f"/path/to/python}}`, or in the variable {variables.PYTHON}"
    )


def with_profile(spec: RunSpec, environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` with what the vendor's profile file adds. It takes no variable away, and of
    those that are set it only extends lists such as PATH. A container and a login shell, which
    loads modules, bring these variables themselves."""
    extended = dict(environment)
    file = plugins.declared(KINDS, "VENDOR_PROFILE").get(spec.kind, "")
    if not Path(file).is_file() or spec.software.container or spec.software.modules:
        return extended
    command = ["bash", "-c", '. "$0" >/dev/null 2>&1; exec env -0', file]
    try:
        printed = ask(command, ASK_S, environment).stdout
    except NO_ANSWER:
        return extended
    for entry in printed.split("\0"):
        name, _, value = entry.partition("=")
        if name in ("", "_", "SHLVL", "PWD", "OLDPWD"):
            continue
        if name not in environment or environment[name] in value:
            extended[name] = value
    return extended


def recorded_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that affect a job's speed, with their values."""
    of_kinds = plugins.declared(KINDS, "RECORDED_VARIABLES").values()
    prefixes = ("LD_PRELOAD", *RECORDED_PREFIXES, *itertools.chain.from_iterable(of_kinds))
    return {name: value for name, value in environment.items() if name.startswith(prefixes)}


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


def interpreter(software: Software) -> str:
    """The interpreter of the training processes; a relative path starts at the project's root."""
    if software.python is None:
        return "python3" if software.container else sys.executable
    # Links are not resolved: Python finds an environment by the link to its interpreter.
    return _from_root(software.python) if "/" in software.python else software.python


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
    """Raise DeviceError if the job's processes cannot be started here with `environment`. Software
    other than this process's own is tried: the worker is imported inside modules and container."""
    software, programs = spec.software, check_programs(spec, environment)
    if not (software.python or software.modules or software.container):
        return
    try:
        command = wrap(spec, ["sh", "-c", _PROBE, "sh", *programs])
        answer = ask(command, PROBE_S, environment, dies_with_us=True)
    except NO_ANSWER as error:
        raise DeviceError(f"software: its test run did not end: {error}") from None
    code, lines = answer.returncode, answer.stderr.strip().splitlines()
    if not code:
        return
    message = lines[-1].strip() if lines else "no message"
    load = f"`module load {' '.join(software.modules)}`"
    reasons = {
        _NO_MODULES: "software.modules: a login bash has no command `module` here",
        _NOT_LOADED: f"software.modules: {load} failed: {message}",
        _NOT_FOUND: _absent(message),
        _NOT_RUN: f"software: {interpreter(software)} cannot run the training job: {message}",
        _NO_COMMAND: _absent("apptainer"),
    }
    unknown = f"software: the processes cannot be started (exit code {code}): {message}"
    raise DeviceError(reasons.get(code, unknown))


def check_programs(spec: RunSpec, environment: Mapping[str, str]) -> list[str]:
    """The interpreter and the launcher's program. Raises DeviceError if one of them, or the program
    that they are wrapped in, is not here; nothing is started."""
    software = spec.software
    programs = [interpreter(software)]
    launcher = plugins.declared(LAUNCHERS, "PROGRAM").get(spec.launcher)
    if launcher:
        programs.append(launcher)
    visible = programs
    if software.modules:
        visible = ["bash"]
    elif software.container:
        visible = ["apptainer"]
    for program in visible:
        if shutil.which(program, path=environment.get("PATH")) is None:
            raise DeviceError(_absent(program))
    image = software.container
    if image and "://" not in image and not Path(_from_root(image)).exists():
        raise DeviceError(f"software.container: there is no {_from_root(image)}")
    return programs


def _absent(program: str) -> str:
    """The error that a program is not here."""
    for launcher, name in plugins.declared(LAUNCHERS, "PROGRAM").items():
        if program == name:
            hint = plugins.declared(LAUNCHERS, "MISSING").get(launcher, "choose another launcher")
            return f"launcher: {program} is not installed here: {hint}"
    wrappers = {"bash": "modules", "apptainer": "container"}
    if program in wrappers:
        return f"software.{wrappers[program]}: this needs {program}, which is not on PATH here"
    return f"software.python: there is no program {program}"


def _apptainer(spec: RunSpec, folders: Iterable[Path]) -> list[str]:
    """The command that enters the container, with these folders mounted: the project's, the
    package's, a local checkpoint's, and `folders`."""
    image = str(spec.software.container)
    checkpoint = Path(spec.settings.model.checkpoint or ".")
    weights = [checkpoint] if checkpoint.is_dir() else []
    mounted: list[Path] = []
    command = ["apptainer", "exec", *plugins.declared(KINDS, "CONTAINER_FLAGS").get(spec.kind, ())]
    for path in (Path.cwd(), SOURCES, *weights, *folders):
        folder = path.resolve()
        if not any(folder.is_relative_to(above) for above in mounted):
            mounted.append(folder)
            # Quoted as in CSV, since a folder's name may contain a comma.
            name = str(folder).replace('"', '""')
            command.append(f'--mount=type=bind,"src={name}","dst={name}"')
    return [*command, image if "://" in image else _from_root(image)]


def _from_root(path: str) -> str:
    return str(Path.cwd() / paths.expand(path))


def run_ranks(
    spec: RunSpec,
    job: str,
    folder: Path,
    options: Sequence[str],
    name: str,
    limit_s: float,
    package: str = "feedrate",
) -> None:
    """Run a job of `package` in `folder` on each rank of a run. It holds the host's lock, which
    training jobs take too. Raises ExpectedError, which says that `name` failed, or DeviceError."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_json(folder / paths.SPEC_NAME, msgspec.to_builtins(spec))
    module = [package, job, "--run", str(folder), *options]
    folders = [folder, *(Path(word) for word in options if word.startswith("/"))]
    start = prepare(spec, module, folders, os.environ)
    try:
        with host_lock(partial(tell, "feedrate")) as locks:
            subprocess.run(
                start.command, env=start.environment, check=True, timeout=limit_s, pass_fds=locks
            )
    except subprocess.TimeoutExpired:
        raise ExpectedError(f"{name} took longer than {limit_s:g} s") from None
    except subprocess.CalledProcessError as error:
        code = error.returncode
        raise ExpectedError(f"{name} failed with exit code {code}; see the lines above") from None
