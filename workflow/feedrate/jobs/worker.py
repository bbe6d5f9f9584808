"""One process of a training job: `python -m feedrate.jobs.worker --run DIR --data PREPARED`.

The folder holds the job's `spec.json`; events and the Trainer's files go there. The supervisor
(`python -m feedrate.jobs.supervisor`) starts one for every rank.
"""

import argparse
import contextlib
import importlib
import json
import sys
import traceback
from pathlib import Path

from feedrate.config.reading import convert
from feedrate.config.spec import RunSpec
from feedrate.core.errors import Masker
from feedrate.core.paths import SPEC_NAME
from feedrate.core.processes import die_with_supervisor
from feedrate.devices.base import prepare_process
from feedrate.devices.launch import rank_from_environment
from feedrate.devices.placement import bind_rank
from feedrate.jobs.events import EventLog
from feedrate.jobs.failure import classify
from feedrate.loading.hang import ends_the_process

JOBS = {"training": "feedrate.jobs.train", "inference": "feedrate.jobs.infer"}
"""What a run of each task does; by name, since each imports what the other does without."""


def main(arguments: list[str] | None = None) -> int:
    """Run one rank; 0 where it ended well, 1 where its events hold an error."""
    die_with_supervisor()
    options = parse_arguments(arguments)
    run: Path = options.run
    rank = rank_from_environment()[0]
    log = EventLog(run, rank)
    ends_the_process(lambda error: write_error(log, error))
    try:
        _run(options, log)
        log.write("end", ok=True)
    except Exception as error:
        traceback.print_exc()
        with contextlib.suppress(OSError):  # a full disk: the traceback in the log must do
            write_error(log, error)
        return 1
    return 0


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="feedrate.jobs.worker", description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="folder with spec.json")
    parser.add_argument("--data", type=Path, required=True, help="folder of the prepared dataset")
    parser.add_argument("--resume", action="store_true", help="from the newest checkpoint in --run")
    parser.add_argument("--keep-weights", action="store_true", help="save the model at the end")
    parser.add_argument("--bare", action="store_true", help="without meter and ceilings")
    return parser.parse_args(arguments)


def write_error(log: EventLog, error: Exception) -> None:
    """The `error` and `end` events of a rank that failed."""
    failure, mask = classify(error), Masker()
    log.write(
        "error",
        type=failure.type,
        message=mask(failure.message),
        out_of_memory=failure.out_of_memory,
        infrastructure=failure.infrastructure,
        traceback=mask("".join(traceback.format_exception(error))),
    )
    log.write("end", ok=False)


def _run(options: argparse.Namespace, log: EventLog) -> None:
    origin = options.run / SPEC_NAME
    spec = convert(json.loads(origin.read_text(encoding="utf-8")), RunSpec, str(origin))
    _, _, local_rank, local_ranks = rank_from_environment()
    placement = bind_rank(spec.kind, local_rank, local_ranks)
    prepare_process(spec, options.run)
    # Heavy, and only for a process that is where it stays; an error in it is an event too.
    job = importlib.import_module(JOBS[spec.task])
    from feedrate.jobs.opening import Options

    chosen = Options(
        resume=options.resume, keep_weights=options.keep_weights, measured=not options.bare
    )
    job.run_job(spec, options.data, options.run, log, placement, chosen)


if __name__ == "__main__":
    sys.exit(main())
