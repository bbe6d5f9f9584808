"""One process of a job: `python -m feedrate.jobs.worker --run DIR --data PREPARED`.

The folder holds the job's `spec.json`; events and the Trainer's files go there. The supervisor
(`python -m feedrate.jobs.supervisor`) starts one process for every rank, and
`python -m feedrate.jobs.score` one that scores weights.
"""

import argparse
import contextlib
import importlib
import json
import sys
import traceback
from dataclasses import fields
from pathlib import Path

from feedrate.config.reading import convert
from feedrate.config.spec import RunSpec
from feedrate.core.errors import Masker
from feedrate.core.paths import SPEC_NAME
from feedrate.core.processes import die_with_supervisor
from feedrate.devices.base import adapter_class
from feedrate.devices.launch import rank_from_environment
from feedrate.devices.placement import bind_rank
from feedrate.jobs.events import End, Error, EventLog
from feedrate.jobs.failure import classify
from feedrate.loading.watchdog import end_process_on_hang

JOBS = {"training": "feedrate.jobs.train", "inference": "feedrate.jobs.infer"}
"""The module of each task, by name: each imports libraries that the other does without."""
SCORING = "feedrate.jobs.score_model"


def main(arguments: list[str] | None = None) -> int:
    """Run one rank; 0 where it ended well, 1 where its events hold an error."""
    die_with_supervisor()
    options = parse_arguments(arguments)
    log = EventLog(options.run, rank_from_environment()[0])
    end_process_on_hang(lambda error: write_error(log, error))
    try:
        _run(options, log)
        log.write(End(rank=log.rank, ok=True))
    except Exception as error:
        print(Masker()(traceback.format_exc()), file=sys.stderr)
        with contextlib.suppress(OSError):  # on a full disk the traceback in the log must do
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
    parser.add_argument(
        "--bare", dest="measured", action="store_false", help="without meter and ceilings"
    )
    parser.add_argument("--score", type=Path, help="score the weights in this folder instead")
    parser.add_argument("--winoground", type=Path, help="examples.json, for --score")
    return parser.parse_args(arguments)


def write_error(log: EventLog, error: Exception) -> None:
    """Write the `error` and `end` events of a rank that failed."""
    failure, mask = classify(error), Masker()
    log.write(
        Error(
            rank=log.rank,
            type=failure.type,
            message=mask(failure.message),
            out_of_memory=failure.out_of_memory,
            infrastructure=failure.infrastructure,
            traceback=mask("".join(traceback.format_exception(error))),
        )
    )
    log.write(End(rank=log.rank, ok=False))


def _run(options: argparse.Namespace, log: EventLog) -> None:
    """Bind this process to its cores and device, and then import and run its job."""
    origin = options.run / SPEC_NAME
    spec = convert(json.loads(origin.read_text(encoding="utf-8")), RunSpec, str(origin))
    _, _, local_rank, local_ranks = rank_from_environment()
    placement = bind_rank(spec.kind, local_rank, local_ranks)
    adapter_class(spec.kind).prepare_process(spec, options.run)
    # torch starts its threads when it is imported: not before the process is bound.
    job = importlib.import_module(SCORING if options.score else JOBS[spec.task])
    from feedrate.jobs.job_setup import Options

    chosen = Options(**{field.name: getattr(options, field.name) for field in fields(Options)})
    job.run_job(spec, options.data, options.run, log, placement, chosen)


if __name__ == "__main__":
    sys.exit(main())
