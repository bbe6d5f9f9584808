"""The job entry: `python -m feedrate.train --spec SPEC --data MANIFEST --out RUN_DIR …`.

Runs one training job and leaves its folder as docs/architecture.md says, `outcome.json` last. A
cell that fails or runs out of memory is an outcome, and the exit code is 0. A fault of the machine
(device absent, data not as prepared, disk full, stopped from outside) is one sentence on stderr, a
non-zero exit code and no outcome, so that the workflow tries again; in the last of its tries, an
absent device or wrong data is a failed outcome too. A job of the same run that is at work already
is waited for, and its outcome is this one's.
"""

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path

from feedrate import variables
from feedrate.config.load import ConfigError, convert, convert_text
from feedrate.config.settings import RunSpec
from feedrate.endings import fail
from feedrate.failure import classify
from feedrate.paths import OUTCOME_NAME
from feedrate.train.attend import FAULTS, PROGRAM, Attendance
from feedrate.train.supervise import Interrupted, Watch
from feedrate.train.vigil import Claimed


def main(arguments: list[str] | None = None) -> int:
    """Run the job; the exit code."""
    options = parse_arguments(arguments)
    watch = Watch()
    try:
        spec = read_spec(options.spec)
        check_protocol(spec)
        lost = os.environ.get(variables.LOST)
        if lost:
            Attendance(spec, options, watch).record_lost(read_cause(lost, options.out))
        else:
            Attendance(spec, options, watch).to_the_end()
    except Interrupted as interruption:
        return fail(PROGRAM, interruption, interruption.exit_code)
    except (ConfigError, Claimed, *FAULTS) as error:
        return fail(PROGRAM, error)
    except OSError as error:
        return fail(PROGRAM, classify(error).message)
    return 0


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Run one training job.")
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
        "--keep-weights",
        action="store_true",
        default=bool(os.environ.get(variables.KEEP_WEIGHTS)),
        help="save the model of repeat 1 at the end, even where the protocol does not",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")
    return parser.parse_args(arguments)


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


def read_cause(file: str, out: Path) -> str:
    """The cause that a file of lost runs gives for the outcome in `out`. Raises ConfigError."""
    try:
        causes = json.loads(Path(file).read_text(encoding="utf-8"))
        found = {Path(path).resolve(): str(cause) for path, cause in causes.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{variables.LOST}: {file} is no JSON object of causes ({error})"
        ) from None
    outcome = out / OUTCOME_NAME
    if outcome.resolve() not in found:
        raise ConfigError(
            f"{variables.LOST}: {file} gives no cause for {outcome}; nothing is trained"
        )
    return found[outcome.resolve()]


if __name__ == "__main__":
    sys.exit(main())
