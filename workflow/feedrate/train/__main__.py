"""The job entry: `python -m feedrate.train --spec SPEC --data MANIFEST --out RUN_DIR …`.

Runs one training job and leaves its folder as docs/architecture.md says, `outcome.json` last. A
cell that fails or runs out of memory is an outcome, and the exit code is 0. A fault of the machine
(device absent, data not as prepared, disk full, stopped from outside) is one sentence on stderr, a
non-zero exit code and no outcome, so that the workflow tries again; in the last of its tries, an
absent device or wrong data is a failed outcome too.
"""

import argparse
import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from feedrate.config.load import ConfigError, convert, convert_text
from feedrate.config.settings import RunSpec
from feedrate.data.manifest import DataError, check_prepared
from feedrate.devices.host import cores_granted, machine_state
from feedrate.devices.launch import launch_command, launch_environment
from feedrate.files import digest_file, digest_value
from feedrate.train.failure import classify
from feedrate.train.host_lock import host_lock, lock_path
from feedrate.train.judge import MachineFault, judge
from feedrate.train.progress import ProgressLine
from feedrate.train.secrets import Masker
from feedrate.train.supervise import Interrupted, Watch, run_processes
from feedrate.train.workspace import SPEC, give_up, keep_log, open_attempt, publish

OUTCOME_SCHEMA = 1
QUIET = "FEEDRATE_QUIET"
RETRIES = "FEEDRATE_RETRIES"
"""Environment variable: how often the workflow tries a failed job again."""
PUSH_TO = "FEEDRATE_PUSH_TO"
"""Environment variable: the driver's `push_to_hub`. No param, since it trains nothing anew."""


def main(arguments: list[str] | None = None) -> int:
    """Run the job; the exit code."""
    options = parse_arguments(arguments)
    watch = Watch()
    try:
        spec = read_spec(options.spec)
        check_protocol(spec)
        try:
            check_prepared(options.data.parent)
            supervise(spec, options, watch)
        except (DataError, MachineFault) as fault:
            if not is_last(options.try_):
                raise
            record_fault(spec, options, str(fault))
            _fail(f"{fault}", 1)
    except Interrupted as interruption:
        return _fail(f"{interruption}", interruption.exit_code)
    except (ConfigError, DataError, MachineFault) as error:
        return _fail(f"{error}", 1)
    except OSError as error:
        return _fail(classify(error).message, 1)
    return 0


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="feedrate.train", description="Run one training job.")
    parser.add_argument("--spec", required=True, help="a JSON file, or a mapping as Python literal")
    parser.add_argument("--data", type=Path, required=True, help="the dataset's manifest.json")
    parser.add_argument("--out", type=Path, required=True, help="the run's folder")
    parser.add_argument("--source-digest", default="", help="digest of the measured code")
    parser.add_argument("--attempt", type=int, default=1, help="which try this is, from 1")
    parser.add_argument("--resume", action="store_true", help="from the newest checkpoint there is")
    parser.add_argument(
        "--try",
        dest="try_",
        type=int,
        help="Snakemake's count of its tries, from 1: a fault of the machine is an outcome in the "
        "last of them",
    )
    parser.add_argument(
        "--push-to",
        default=os.environ.get(PUSH_TO),
        help="hub repository for the weights of repeat 1; needs HF_TOKEN",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")
    return parser.parse_args(arguments)


def is_last(number: int | None) -> bool:
    """Whether no other try follows; False outside a workflow."""
    return number is not None and number > int(os.environ.get(RETRIES, "0"))


def read_spec(text: str) -> RunSpec:
    """The spec from a JSON file, or from a mapping as text. Raises ConfigError."""
    with contextlib.suppress(OSError):  # a text may be too long for a file's name
        if Path(text).is_file():
            try:
                value = json.loads(Path(text).read_text(encoding="utf-8"))
            except ValueError as error:
                raise ConfigError(f"{text}: not JSON ({error})") from None
            return convert(value, RunSpec, text)
    return convert_text(text, RunSpec, "--spec")


def check_protocol(spec: RunSpec) -> None:
    """Raise ConfigError where no step is left to measure, or ranks have no launcher."""
    protocol = spec.protocol
    if protocol.steps <= protocol.warmup_steps:
        raise ConfigError(
            f"protocol.steps: {protocol.steps} leaves no step to measure after "
            f"protocol.warmup_steps: {protocol.warmup_steps}"
        )
    if spec.count > 1 and spec.launcher == "single":
        raise ConfigError(f"launcher: single starts one process, and count is {spec.count}")


def supervise(spec: RunSpec, options: argparse.Namespace, watch: Watch) -> None:
    """Run the job alone on this host and publish what came of it.

    Raises Interrupted or MachineFault where there is no outcome.
    """
    progress = ProgressLine(spec, quiet=options.quiet or os.environ.get(QUIET) == "1")
    value = msgspec.to_builtins(spec)
    options.out.mkdir(parents=True, exist_ok=True)
    with host_lock(lock_path(), progress.tell, watch.check) as lock:
        attempt = open_attempt(options.out, value, resume=options.resume)
        try:
            outcome = _run(spec, options, attempt, lock=lock, watch=watch, progress=progress)
        except (Interrupted, MachineFault) as error:
            log = keep_log(attempt)
            raise _with_log(error, log) from None
        outcome["spec_digest"] = digest_value(value)
        publish(attempt, outcome)
    if outcome["cause"]:
        progress.tell(f"{outcome['status']}: {outcome['cause']}")


def record_fault(spec: RunSpec, options: argparse.Namespace, cause: str) -> None:
    """Leave a failed outcome of a job that the machine let down. Raises OSError."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    value = msgspec.to_builtins(spec)
    outcome = {
        **_facts(options),
        "status": "failed",
        "infrastructure": True,
        "cause": Masker()(cause),
        "exit_code": 1,
        "started_at": now,
        "ended_at": now,
        "spec_digest": digest_value(value),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    give_up(options.out, value, outcome)


def _facts(options: argparse.Namespace) -> dict[str, Any]:
    """What every outcome says of the job, whatever became of it."""
    command = ["python", "-m", "feedrate.train", "--spec", str(options.out / SPEC)]
    command += ["--data", str(options.data), "--out", str(options.out)]
    data = options.data
    return {
        "schema": OUTCOME_SCHEMA,
        "attempt": options.attempt,
        "command": Masker()(shlex.join(command)),
        "commit": read_commit(),
        "source_digest": options.source_digest,
        "data_digest": digest_file(data) if data.is_file() else "",
    }


def _run(
    spec: RunSpec,
    options: argparse.Namespace,
    attempt: Path,
    *,
    lock: int,
    watch: Watch,
    progress: ProgressLine,
) -> dict[str, Any]:
    cores = max(1, cores_granted() // spec.count)
    state, facts = machine_state(), _facts(options)
    started, start_s = datetime.now(UTC), time.monotonic()
    ending, peak_gib = run_processes(
        spec,
        attempt,
        launch_command(spec.launcher, spec.count, cores, _worker(spec, options, attempt)),
        launch_environment(spec.kind, spec.launcher, spec.count, cores, os.environ),
        lock=lock,
        watch=watch,
        progress=progress,
    )
    verdict = judge(spec, attempt, ending)
    mask = Masker()
    return {
        **facts,
        "status": verdict.status,
        "infrastructure": False,
        "cause": mask(verdict.cause),
        "exit_code": ending.exit_code,
        "started_at": started.isoformat(timespec="seconds"),
        "ended_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "duration_s": round(time.monotonic() - start_s, 3),
        "machine_before": state,
        "host_peak_memory_gib": peak_gib,
    }


def _worker(spec: RunSpec, options: argparse.Namespace, attempt: Path) -> list[str]:
    """The worker's module and arguments."""
    command = ["feedrate.train.worker", "--run", str(attempt), "--data", str(options.data.parent)]
    if options.resume:
        command.append("--resume")
    if options.push_to and spec.repeat == 1:
        command += ["--push-to", options.push_to]
    return command


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


def _with_log(error: Exception, log: Path) -> Exception:
    """The same error, with the log's path where there is a log to read."""
    if log.exists() and isinstance(error, MachineFault):
        return MachineFault(f"{error}; see {log}")
    return error


def _fail(message: str, exit_code: int) -> int:
    print(f"feedrate.train: {Masker()(message)}", file=sys.stderr)
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
