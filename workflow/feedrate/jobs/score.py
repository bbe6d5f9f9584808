"""`python -m feedrate score`: score a run's model before and after training.

The answer is quality.json, also where there is no score: the report shows the cause.
"""

import json
import os
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.devices import default_launcher
from feedrate.config.errors import ConfigError
from feedrate.config.spec import RunSpec, timeout_min
from feedrate.core import variables
from feedrate.core.errors import Masker, tell
from feedrate.core.files import write_json
from feedrate.core.paths import EVENTS_NAME, SPEC_NAME
from feedrate.core.processes import die_with_parent, this_process
from feedrate.devices import launch
from feedrate.devices.base import DeviceError
from feedrate.devices.host import host_lock, lock_name
from feedrate.jobs.event_tail import EventTail
from feedrate.jobs.events import Error, Scores

SCHEMA = 1
"""Version of quality.json, which its reader in results/ checks."""


def score_run(
    spec: RunSpec,
    outcome: Path,
    model: Path,
    data: Path,
    out: Path,
    *,
    winoground: Path | None = None,
    attempt: int = 1,
) -> None:
    """Score a run's model before and after training, and write `out` (quality.json).

    --outcome       the run's outcome.json
    --model         folder of its weights
    --data          the dataset's manifest.json
    --winoground    examples.json
    --attempt       number of the attempt, from 1
    """
    began = time.monotonic()
    answer = without_model(outcome, model, out) or score(spec, model, data, out, winoground)
    seconds = round(time.monotonic() - began, 3)
    write_json(out, {"schema": SCHEMA, "attempt": attempt, "seconds": seconds, **answer})
    if answer["status"] != "ok":
        tell("feedrate score", f"not scored: {answer['cause']}")


def without_model(outcome: Path, model: Path, out: Path) -> dict[str, Any]:
    """The answer for a run without a model, or for a run that the workflow gave up scoring;
    empty if there is a model to score. Raises ConfigError if `outcome` cannot be read."""
    try:
        ended = json.loads(outcome.read_text(encoding="utf-8"))
        status, cause = str(ended["status"]), str(ended["cause"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{outcome}: not an outcome ({type(error).__name__}: {error})") from None
    if status != "ok":
        cause = f"The run ended with status {status.replace('_', ' ')}: {cause}"
        return {"status": "no_model", "cause": cause}
    if not any(model.glob("*.safetensors")):
        return {"status": "no_model", "cause": f"The run kept no weights in {model}."}
    lost = os.environ.get(variables.LOST)
    if not lost:
        return {}
    causes = json.loads(Path(lost).read_text(encoding="utf-8"))
    return {"status": "failed", "cause": causes.get(str(out), "given up with other jobs")}


def score(
    spec: RunSpec, model: Path, data: Path, out: Path, winoground: Path | None
) -> dict[str, Any]:
    """The answer of one worker, which runs in the device's own software and is the only job of
    feedrate on this host."""
    alone = msgspec.structs.replace(spec, count=1, nodes=1, launcher=default_launcher("process"))
    folders = [out.parent, model, data.parent, *([winoground.parent] if winoground else [])]
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".quality-") as name:
        scratch = Path(name)
        write_json(scratch / SPEC_NAME, msgspec.to_builtins(alone))
        module = ["feedrate", "worker", "--run", name, "--data", str(data.parent)]
        module += ["--score", str(model)]
        module += ["--winoground", str(winoground)] if winoground else []
        try:
            job = launch.prepare(alone, module, folders, os.environ)
            with host_lock(lock_name(), partial(tell, "feedrate score")) as lock:
                ended = subprocess.run(
                    job.command,
                    env={**job.environment, variables.SUPERVISOR_PID: this_process()},
                    check=False,
                    timeout=timeout_min(spec) * 60,
                    pass_fds=[lock],
                    preexec_fn=die_with_parent,  # no thread of ours runs yet
                )
        except (DeviceError, OSError, subprocess.SubprocessError) as error:
            return {"status": "failed", "cause": Masker()(str(error))}
        for event in EventTail(scratch / EVENTS_NAME).read():
            if isinstance(event, Scores):
                return {"status": "ok", "scores": event.scores, "winoground": event.winoground}
            if isinstance(event, Error):
                return {"status": "failed", "cause": event.message}
    cause = f"its process ended without an answer (exit code {ended.returncode})"
    return {"status": "failed", "cause": cause}
