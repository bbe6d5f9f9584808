"""The folders of a run: an attempt's scratch, and what is kept of it once the job has ended."""

import shutil
from pathlib import Path

from feedrate.files import write_json

ATTEMPT = "attempt"
SPEC = "spec.json"
LOG = "train.log"
OUTCOME = "outcome.json"
TRAINER = "trainer"
STALE = (SPEC, LOG, OUTCOME, "events*.jsonl")


def open_attempt(run: Path, spec: object, *, resume: bool) -> Path:
    """Clear what earlier attempts left in `run`; return the folder of this one, with the spec.

    Of an earlier attempt only its checkpoints stay, and only for `resume`.
    """
    attempt = run / ATTEMPT
    kept = _checkpoints(run) if resume else []
    for pattern in STALE:
        for stale in run.glob(pattern):
            stale.unlink()
    fresh = run / f".{ATTEMPT}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    (fresh / TRAINER).mkdir(parents=True)
    for checkpoint in kept:
        checkpoint.rename(fresh / TRAINER / checkpoint.name)
    for old in (attempt, run / TRAINER):
        if old.exists():
            shutil.rmtree(old)
    fresh.rename(attempt)
    write_json(attempt / SPEC, spec)
    return attempt


def publish(attempt: Path, outcome: dict[str, object]) -> None:
    """Move the attempt's files into the run's folder, and write the outcome last."""
    run = attempt.parent
    for path in sorted(attempt.iterdir()):
        path.replace(run / path.name)
    attempt.rmdir()
    write_json(run / OUTCOME, outcome)


def give_up(run: Path, spec: object, outcome: dict[str, object]) -> None:
    """Leave an outcome of a job that the machine let down: no events, only the log, if any."""
    for stale in [*run.glob("events*.jsonl"), run / OUTCOME]:
        stale.unlink(missing_ok=True)
    shutil.rmtree(run / ATTEMPT, ignore_errors=True)
    write_json(run / SPEC, spec)
    write_json(run / OUTCOME, outcome)


def keep_log(attempt: Path) -> Path:
    """Of an attempt that ends in no outcome, leave the log where readers look for it."""
    log = attempt / LOG
    return log.replace(attempt.parent / LOG) if log.exists() else log


def _checkpoints(run: Path) -> list[Path]:
    """Checkpoints of the newest attempt that has any."""
    for folder in (run / ATTEMPT / TRAINER, run / TRAINER):
        if found := sorted(folder.glob("checkpoint-*")):
            return found
    return []
