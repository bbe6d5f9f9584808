"""`python -m feedrate.jobs.score`: score a run's model before and after training.

A run that has failed or has kept no weights gets a quality.json that says so; so does a model that
cannot be scored. Either is no error here: the report shows it, and the suite goes on.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.errors import ConfigError
from feedrate.config.reading import convert_text
from feedrate.config.spec import RunSpec, timeout_min
from feedrate.core import variables
from feedrate.core.errors import Masker, fail, tell
from feedrate.core.files import write_json
from feedrate.core.paths import SPEC_NAME
from feedrate.core.processes import die_with_parent, supervisor
from feedrate.devices import launch
from feedrate.devices.base import DeviceError
from feedrate.devices.host import host_lock, lock_path

PROGRAM = "feedrate.jobs.score"
SCHEMA = 1
"""Of quality.json, as the reader in results/ knows it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    parser.add_argument("--spec", required=True, help="the run's, as a Python literal")
    parser.add_argument("--outcome", type=Path, required=True, help="the run's outcome.json")
    parser.add_argument("--model", type=Path, required=True, help="folder of its weights")
    parser.add_argument("--data", type=Path, required=True, help="the dataset's manifest.json")
    parser.add_argument("--winoground", type=Path, help="examples.json")
    parser.add_argument("--attempt", type=int, default=1, help="which try this is, from 1")
    parser.add_argument("--out", type=Path, required=True, help="quality.json")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    try:
        spec = convert_text(options.spec, RunSpec, "--spec")
        answer = without_model(options) or score(spec, options)
        told = {"attempt": options.attempt, "seconds": round(time.monotonic() - began, 3)}
        write_json(options.out, {"schema": SCHEMA, **told, **answer})
    except (ConfigError, OSError) as error:
        return fail(PROGRAM, error)
    if answer["status"] != "ok":
        tell(PROGRAM, f"not scored: {answer['cause']}")
    return 0


def without_model(options: argparse.Namespace) -> dict[str, Any]:
    """The answer for a run that has no model to score, or whose scoring was given up; empty where
    there is one to score. Raises ConfigError."""
    if cause := lacks(options.outcome, options.model):
        return {"status": "no_model", "cause": cause}
    lost = os.environ.get(variables.LOST)
    if not lost:
        return {}
    causes = json.loads(Path(lost).read_text(encoding="utf-8"))
    return {"status": "failed", "cause": causes.get(str(options.out), "given up with other jobs")}


def lacks(outcome: Path, model: Path) -> str:
    """Why a run has no model; empty where it has one. Raises ConfigError."""
    try:
        ended = json.loads(outcome.read_text(encoding="utf-8"))
        status, cause = str(ended["status"]), str(ended["cause"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{outcome}: not an outcome ({type(error).__name__}: {error})") from None
    if status != "ok":
        return f"The run ended in {status.replace('_', ' ')}: {cause}"
    return "" if any(model.glob("*.safetensors")) else f"The run kept no weights in {model}."


def score(spec: RunSpec, options: argparse.Namespace) -> dict[str, Any]:
    """The answer of one process, which runs in the device's own software, alone on this host."""
    alone = msgspec.structs.replace(spec, count=1, nodes=1, launcher="single")
    folder = options.out.parent
    with tempfile.TemporaryDirectory(dir=folder, prefix=".quality-") as name:
        scratch = Path(name)
        write_json(scratch / SPEC_NAME, msgspec.to_builtins(alone))
        try:
            job = launch.prepare(alone, worker(options, scratch), folders(options), os.environ)
            with host_lock(lock_path(), partial(tell, PROGRAM)) as lock:
                ended = subprocess.run(
                    job.command,
                    env={**job.environment, variables.SUPERVISOR_PID: supervisor()},
                    check=False,
                    timeout=timeout_min(spec) * 60,
                    pass_fds=[lock],
                    preexec_fn=die_with_parent,  # no thread of ours runs yet
                )
        except (DeviceError, OSError, subprocess.SubprocessError) as error:
            return {"status": "failed", "cause": Masker()(str(error))}
        answer = scratch / "answer.json"
        if not answer.is_file():
            cause = f"its process ended without an answer (exit code {ended.returncode})"
            return {"status": "failed", "cause": cause}
        said: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return said


def worker(options: argparse.Namespace, scratch: Path) -> list[str]:
    """The worker's module and arguments."""
    command = [
        "feedrate.jobs.score_worker",
        "--folder",
        str(scratch),
        "--model",
        str(options.model),
    ]
    command += ["--data", str(options.data.parent)]
    return command + (["--winoground", str(options.winoground)] if options.winoground else [])


def folders(options: argparse.Namespace) -> list[Path]:
    """What the worker reads and writes."""
    others = [options.winoground.parent] if options.winoground else []
    return [options.out.parent, options.model, options.data.parent, *others]


if __name__ == "__main__":
    sys.exit(main())
