"""A short measurement of a command, on every rank of a run."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from feedrate.config.spec import RunSpec
from feedrate.core.errors import ExpectedError, tell
from feedrate.core.files import write_json
from feedrate.core.paths import SPEC_NAME
from feedrate.devices import launch
from feedrate.devices.host import host_lock


class MeasuringError(ExpectedError):
    """A measurement failed."""


def run_ranks(
    spec: RunSpec,
    job: str,
    folder: Path,
    options: Sequence[str],
    what: str,
    limit_s: float,
    package: str = "feedrate",
) -> None:
    """Run a job of `package` in `folder` on each rank of a run. It holds the host's lock, which
    training jobs take too. Raises MeasuringError, which says `what` failed, or DeviceError."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_json(folder / SPEC_NAME, msgspec.to_builtins(spec))
    module = [package, job, "--run", str(folder), *options]
    folders = [folder, *(Path(word) for word in options if word.startswith("/"))]
    made = launch.prepare(spec, module, folders, os.environ)
    try:
        with host_lock(partial(tell, "feedrate")) as locks:
            subprocess.run(
                made.command, env=made.environment, check=True, timeout=limit_s, pass_fds=locks
            )
    except subprocess.TimeoutExpired:
        raise MeasuringError(f"{what} took longer than {limit_s:g} s") from None
    except subprocess.CalledProcessError as error:
        code = error.returncode
        raise MeasuringError(f"{what} failed with exit code {code}; see the lines above") from None
