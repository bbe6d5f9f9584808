"""The folder of a run: the scratch of an attempt, the files of a finished job, adopted results.

An attempt works in `attempt-<token>/`. When its job has ended, its files move up one by one, and
outcome.json is written last. `.finished.json` and `.finished.log` are second names of the outcome
and the log: Snakemake removes the first ones when it starts the same job again, and a job that was
started again adopts the result.
"""

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from feedrate.core import variables
from feedrate.core.files import write_json
from feedrate.core.paths import (
    ANY_EVENTS,
    LOG_NAME,
    OUTCOME_NAME,
    RECORD_NAME,
    SPEC_NAME,
    TRAINER_NAME,
)
from feedrate.jobs.run_lock import Identity

ATTEMPT = "attempt-"
CHECKPOINTS = "checkpoint-*"
FINISHED = ".finished.json"
FINISHED_LOG = ".finished.log"
STALE = (FINISHED, FINISHED_LOG, SPEC_NAME, LOG_NAME, OUTCOME_NAME, ANY_EVENTS, ".*.part")


def open_attempt(run: Path, token: str, spec: object, *, resume: bool) -> Path:
    """Remove the files of earlier attempts from `run`; return this one's folder, with the spec.

    Of the earlier attempts only checkpoints are kept, and only for `resume`.
    """
    attempt = run / f"{ATTEMPT}{token}"
    kept = _checkpoints(run) if resume else []
    for pattern in STALE:
        for stale in run.glob(pattern):
            stale.unlink(missing_ok=True)
    (attempt / TRAINER_NAME).mkdir(parents=True)
    for checkpoint in kept:
        checkpoint.rename(attempt / TRAINER_NAME / checkpoint.name)
    for old in [*_attempts(run), run / TRAINER_NAME]:
        if old != attempt:
            shutil.rmtree(old, ignore_errors=True)
    write_json(attempt / SPEC_NAME, spec)
    return attempt


def _attempts(run: Path) -> list[Path]:
    """The folders of this attempt and of those that ended without an outcome, oldest first."""
    found: list[tuple[float, Path]] = []
    for path in run.glob(f"{ATTEMPT}*"):
        with contextlib.suppress(FileNotFoundError):
            found.append((path.stat().st_mtime, path))
    return [path for _, path in sorted(found)]


def _checkpoints(run: Path) -> list[Path]:
    """Checkpoints of the newest attempt that has any."""
    for folder in [*(path / TRAINER_NAME for path in reversed(_attempts(run))), run / TRAINER_NAME]:
        if found := sorted(folder.glob(CHECKPOINTS)):
            return found
    return []


def keep_log(attempt: Path) -> Path:
    """Move the log of an attempt without an outcome to where readers look for it."""
    log = attempt / LOG_NAME
    return log.replace(attempt.parent / LOG_NAME) if log.exists() else log


def publish(attempt: Path, outcome: dict[str, Any], token: str) -> None:
    """Move the attempt's files into the run's folder, and write the outcome last."""
    run = attempt.parent
    names = sorted(path.name for path in attempt.iterdir())
    for name in names:
        (attempt / name).replace(run / name)
    attempt.rmdir()
    commit(run, outcome, token, names)


def publish_without_results(run: Path, spec: object, outcome: dict[str, Any], token: str) -> None:
    """Leave an outcome alone: no events and no weights, only the log, if there is one, and
    checkpoints to resume from."""
    for stale in [*run.glob(ANY_EVENTS), run / OUTCOME_NAME]:
        stale.unlink(missing_ok=True)
    trainer = run / TRAINER_NAME
    for stale in set(trainer.glob("*")) - set(trainer.glob(CHECKPOINTS)):
        if stale.is_dir():
            shutil.rmtree(stale, ignore_errors=True)
        else:
            stale.unlink(missing_ok=True)
    for attempt in _attempts(run):
        keep_log(attempt)
        shutil.rmtree(attempt, ignore_errors=True)
    write_json(run / SPEC_NAME, spec)
    commit(run, outcome, token, [SPEC_NAME])


def commit(run: Path, outcome: dict[str, Any], token: str, names: list[str]) -> None:
    """Write the outcome of the job with this token, whose files `names` are in place."""
    (run / FINISHED_LOG).unlink(missing_ok=True)
    if (run / LOG_NAME).exists():
        _link(run / LOG_NAME, run / FINISHED_LOG)
    write_json(run / FINISHED, {"token": token, "files": names, "outcome": outcome})
    write_json(run / OUTCOME_NAME, outcome)


def adopt(run: Path, wanted: Identity, seen: set[str]) -> dict[str, Any] | None:
    """Restore the outcome of a finished job of this run, and return it; None where there is none.

    It must be the result of a job in `seen`, which this job saw at work, or newer than this driver,
    or not yet in a record. Any other result is being made again on purpose.
    """
    try:
        found = json.loads((run / FINISHED).read_text(encoding="utf-8"))
        outcome: dict[str, Any] = found["outcome"]
        made = Identity(
            spec=outcome["spec_digest"],
            source=outcome["source_digest"],
            data=outcome["data_digest"],
            attempt=outcome["attempt"],
        )
        files, token = found["files"], found["token"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    complete = all((run / name).exists() for name in files if name != LOG_NAME)
    if not made.serves(wanted) or not complete:
        return None
    if token not in seen and not _is_new(run) and not _is_unread(run):
        return None
    outcome["attempt"] = wanted.attempt
    restore(run, outcome)
    return outcome


def restore(run: Path, outcome: dict[str, Any]) -> None:
    """Write the files again that Snakemake removed when it started the same job again."""
    if not (run / LOG_NAME).exists() and (run / FINISHED_LOG).exists():
        _link(run / FINISHED_LOG, run / LOG_NAME)
    write_json(run / OUTCOME_NAME, outcome)


def _is_new(run: Path) -> bool:
    """Whether the result is newer than this driver."""
    since = os.environ.get(variables.DRIVER_SINCE)
    return since is not None and (run / FINISHED).stat().st_mtime >= float(since)


def _is_unread(run: Path) -> bool:
    """Whether the result is not in a record yet, because its driver died before."""
    if os.environ.get(variables.FORCED):
        return False
    try:
        return (run / RECORD_NAME).stat().st_mtime < (run / FINISHED).stat().st_mtime
    except FileNotFoundError:
        return True


def _link(path: Path, other: Path) -> None:
    """Give a file a second name; copy it where the file system has no links."""
    try:
        os.link(path, other)
    except OSError:
        shutil.copyfile(path, other)
