"""outcome.json: the supervisor's word on a run."""

import argparse
import shlex
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.settings import RunSpec
from feedrate.files import digest_file, digest_value
from feedrate.paths import SPEC_NAME
from feedrate.secrets import Masker
from feedrate.train.holder import Identity
from feedrate.train.judge import Status

SCHEMA = 1


def identity(spec: RunSpec, options: argparse.Namespace) -> Identity:
    """What the job makes."""
    data: Path = options.data
    return Identity(
        spec=digest_value(msgspec.to_builtins(spec)),
        source=options.source_digest,
        data=digest_file(data) if data.is_file() else "",
        attempt=options.attempt,
    )


def facts(made: Identity, options: argparse.Namespace) -> dict[str, Any]:
    """What every outcome says of the job, whatever became of it."""
    command = ["python", "-m", "feedrate.train", "--spec", str(options.out / SPEC_NAME)]
    command += ["--data", str(options.data), "--out", str(options.out)]
    return {
        "schema": SCHEMA,
        "attempt": made.attempt,
        "command": Masker()(shlex.join(command)),
        "commit": read_commit(),
        "source_digest": made.source,
        "data_digest": made.data,
        "spec_digest": made.spec,
    }


def without_run(
    made: Identity,
    options: argparse.Namespace,
    cause: str,
    *,
    status: Status = "failed",
    infrastructure: bool = True,
) -> dict[str, Any]:
    """The outcome of a job that came to no end of its own."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {
        **facts(made, options),
        "status": status,
        "infrastructure": infrastructure,
        "cause": Masker()(cause),
        "exit_code": 1,
        "started_at": now,
        "ended_at": now,
    }


def read_commit() -> str:
    """The project's commit, `-dirty` after it where files differ; empty outside a repository."""
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()
