"""One process of a job: `python -m feedrate worker --run DIR --data PREPARED`.

The supervisor (`python -m feedrate train`) starts one process for every rank, and
`python -m feedrate score` one that scores weights.
"""

import contextlib
import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any

from feedrate.config.spec import RunSpec
from feedrate.config.values import convert
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


def run_rank(
    run: Path,
    data: Path,
    *,
    resume: bool = False,
    keep_weights: bool = False,
    bare: bool = False,
    score: Path | None = None,
    winoground: Path | None = None,
) -> int:
    """Run one rank of a job: 0 if it ended well, 1 if its events hold an error.

    --run         folder with spec.json, for events and the Trainer's files
    --data        folder of the prepared dataset
    --resume      continue from the newest checkpoint in --run
    --bare        run without meter and ceilings
    --score       score the weights in this folder, and on the examples of --winoground
    """
    die_with_supervisor()
    log = EventLog(run, rank_from_environment()[0])
    end_process_on_hang(lambda error: write_error(log, error))
    options = {"resume": resume, "keep_weights": keep_weights, "measured": not bare}
    try:
        _run(run, data, log, {**options, "score": score, "winoground": winoground})
        log.write(End(rank=log.rank, ok=True))
    except Exception as error:
        print(Masker()(traceback.format_exc()), file=sys.stderr)
        with contextlib.suppress(OSError):  # on a full disk the traceback in the log must do
            write_error(log, error)
        return 1
    return 0


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


def _run(run: Path, data: Path, log: EventLog, options: dict[str, Any]) -> None:
    """Bind this process to its cores and device, and then import and run its job."""
    origin = run / SPEC_NAME
    spec = convert(json.loads(origin.read_text(encoding="utf-8")), RunSpec, str(origin))
    _, _, local_rank, local_ranks = rank_from_environment()
    placement = bind_rank(spec.kind, local_rank, local_ranks)
    adapter_class(spec.kind).prepare_process(spec, run)
    # torch starts its threads when it is imported: not before the process is bound.
    job = importlib.import_module(SCORING if options["score"] else JOBS[spec.task])
    from feedrate.jobs.job_setup import Options

    job.run_job(spec, data, run, log, placement, Options(**options))
