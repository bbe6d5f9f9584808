"""`python -m feedrate.jobs.score`: score a run's model before and after training.

The answer is quality.json, also for a run that failed or kept no weights and for a model that
cannot be scored: the report shows the cause, and the suite goes on.
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
from feedrate.core.paths import EVENTS_NAME, SPEC_NAME
from feedrate.core.processes import die_with_parent, supervisor
from feedrate.devices import launch
from feedrate.devices.base import DeviceError
from feedrate.devices.host import host_lock, lock_path
from feedrate.jobs.events import Error, EventTail, Scores

PROGRAM = "feedrate.jobs.score"
SCHEMA = 1
"""Version of quality.json, which its reader in results/ checks."""


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
        seconds = round(time.monotonic() - began, 3)
        about = {"schema": SCHEMA, "attempt": options.attempt, "seconds": seconds}
        write_json(options.out, {**about, **answer})
    except (ConfigError, OSError) as error:
        return fail(PROGRAM, error)
    if answer["status"] != "ok":
        tell(PROGRAM, f"not scored: {answer['cause']}")
    return 0


def without_model(options: argparse.Namespace) -> dict[str, Any]:
    """The answer for a run without a model, or whose scoring the workflow has given up; empty where
    there is a model to score. Raises ConfigError."""
    try:
        outcome = json.loads(options.outcome.read_text(encoding="utf-8"))
        status, cause = str(outcome["status"]), str(outcome["cause"])
    except (ValueError, KeyError, TypeError) as error:
        kind = type(error).__name__
        raise ConfigError(f"{options.outcome}: not an outcome ({kind}: {error})") from None
    if status != "ok":
        cause = f"The run ended in {status.replace('_', ' ')}: {cause}"
        return {"status": "no_model", "cause": cause}
    if not any(options.model.glob("*.safetensors")):
        return {"status": "no_model", "cause": f"The run kept no weights in {options.model}."}
    lost = os.environ.get(variables.LOST)
    if not lost:
        return {}
    causes = json.loads(Path(lost).read_text(encoding="utf-8"))
    return {"status": "failed", "cause": causes.get(str(options.out), "given up with other jobs")}


def score(spec: RunSpec, options: argparse.Namespace) -> dict[str, Any]:
    """The answer of one worker, which runs in the device's own software, alone on this host."""
    alone = msgspec.structs.replace(spec, count=1, nodes=1, launcher="single")
    folder, data = options.out.parent, options.data.parent
    with tempfile.TemporaryDirectory(dir=folder, prefix=".quality-") as name:
        scratch = Path(name)
        write_json(scratch / SPEC_NAME, msgspec.to_builtins(alone))
        command = ["feedrate.jobs.worker", "--run", str(scratch), "--data", str(data)]
        command += ["--score", str(options.model)]
        folders = [folder, options.model, data]
        if options.winoground:
            command += ["--winoground", str(options.winoground)]
            folders.append(options.winoground.parent)
        try:
            job = launch.prepare(alone, command, folders, os.environ)
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
        return read_answer(scratch / EVENTS_NAME, ended.returncode)


def read_answer(events: Path, exit_code: int) -> dict[str, Any]:
    """The scores in the worker's events, or the cause why there are none."""
    for event in EventTail(events).read():
        if isinstance(event, Scores):
            return {"status": "ok", "scores": event.scores, "winoground": event.winoground}
        if isinstance(event, Error):
            return {"status": "failed", "cause": event.message}
    cause = f"its process ended without an answer (exit code {exit_code})"
    return {"status": "failed", "cause": cause}


if __name__ == "__main__":
    sys.exit(main())
