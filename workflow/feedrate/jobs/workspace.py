"""The folders of a run: an attempt's scratch, and what is kept of it once the job has ended."""

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
"""Each attempt works in a folder of its own: this, and the token of its claim."""
CHECKPOINTS = "checkpoint-*"
FINISHED = ".finished.json"
FINISHED_LOG = ".finished.log"
"""Second names of what Snakemake removes when it begins a job, a duplicate's as well."""

STALE = (FINISHED, FINISHED_LOG, SPEC_NAME, LOG_NAME, OUTCOME_NAME, ANY_EVENTS, ".*.part")


def open_attempt(run: Path, token: str, spec: object, *, resume: bool) -> Path:
    """Clear what earlier attempts left in `run`; return the folder of this one, with the spec.

    Of an earlier attempt only its checkpoints stay, and only for `resume`.
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


def publish(attempt: Path, outcome: dict[str, object], token: str) -> None:
    """Move the attempt's files into the run's folder, and write the outcome last."""
    run = attempt.parent
    names = sorted(path.name for path in attempt.iterdir())
    for name in names:
        (attempt / name).replace(run / name)
    attempt.rmdir()
    commit(run, outcome, token, names)


def give_up(run: Path, spec: object, outcome: dict[str, object], token: str) -> None:
    """Leave an outcome of a job that the machine let down: no events and no weights, only the log,
    if any, and checkpoints to resume from."""
    for stale in [*run.glob(ANY_EVENTS), run / OUTCOME_NAME]:
        stale.unlink(missing_ok=True)
    _leave_checkpoints(run / TRAINER_NAME)
    for attempt in _attempts(run):
        keep_log(attempt)
        shutil.rmtree(attempt, ignore_errors=True)
    write_json(run / SPEC_NAME, spec)
    commit(run, outcome, token, [SPEC_NAME])


def commit(run: Path, outcome: dict[str, object], token: str, names: list[str]) -> None:
    """Write the outcome of the job with this token, whose files `names` are in place."""
    (run / FINISHED_LOG).unlink(missing_ok=True)
    if (run / LOG_NAME).exists():
        _second_name(run / LOG_NAME, run / FINISHED_LOG)
    write_json(run / FINISHED, {"token": token, "files": names, "outcome": outcome})
    write_json(run / OUTCOME_NAME, outcome)


def restore(run: Path, outcome: dict[str, object]) -> None:
    """Bring back what a Snakemake removed that began the same job once more."""
    if not (run / LOG_NAME).exists() and (run / FINISHED_LOG).exists():
        _second_name(run / FINISHED_LOG, run / LOG_NAME)
    write_json(run / OUTCOME_NAME, outcome)


def keep_log(attempt: Path) -> Path:
    """Of an attempt that ends in no outcome, leave the log where readers look for it."""
    log = attempt / LOG_NAME
    return log.replace(attempt.parent / LOG_NAME) if log.exists() else log


def _second_name(path: Path, other: Path) -> None:
    """The same file by another name; a copy where the file system has no links."""
    try:
        os.link(path, other)
    except OSError:
        shutil.copyfile(path, other)


def _attempts(run: Path) -> list[Path]:
    """The folders of this attempt and of those that ended without an outcome, oldest first."""
    found: list[tuple[float, Path]] = []
    for path in run.glob(f"{ATTEMPT}*"):
        with contextlib.suppress(FileNotFoundError):
            found.append((path.stat().st_mtime, path))
    return [path for _, path in sorted(found)]


def _leave_checkpoints(trainer: Path) -> None:
    """Remove the rest of what the Trainer of an earlier attempt wrote."""
    for stale in set(trainer.glob("*")) - set(trainer.glob(CHECKPOINTS)):
        if stale.is_dir():
            shutil.rmtree(stale, ignore_errors=True)
        else:
            stale.unlink(missing_ok=True)


def _checkpoints(run: Path) -> list[Path]:
    """Checkpoints of the newest attempt that has any."""
    for folder in [*(path / TRAINER_NAME for path in reversed(_attempts(run))), run / TRAINER_NAME]:
        if found := sorted(folder.glob(CHECKPOINTS)):
            return found
    return []


# A result that is there already: of a job that another took over from, or did not know of.


def adopt(run: Path, wanted: Identity, met: set[str]) -> dict[str, Any] | None:
    """The outcome of a finished job of this run, put back in place; None where there is none.

    It is the result of a job in `met`, that was seen at work, or it came after this driver began,
    or nobody has made a record of it. Any other one is being run again on purpose.
    """
    try:
        text = (run / FINISHED).read_text(encoding="utf-8")
        found = json.loads(text)
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
    if not made.serves(wanted) or not _is_whole(run, files):
        return None
    if token not in met and not _is_new(run) and not _is_unread(run):
        return None
    outcome["attempt"] = wanted.attempt
    restore(run, outcome)
    return outcome


def _is_whole(run: Path, names: list[str]) -> bool:
    return all((run / name).exists() for name in names if name != LOG_NAME)


def _is_new(run: Path) -> bool:
    """Whether the result came after this driver began."""
    since = os.environ.get(variables.DRIVER_SINCE)
    return since is not None and (run / FINISHED).stat().st_mtime >= float(since)


def _is_unread(run: Path) -> bool:
    """Whether no record was made of the result yet: its driver died before."""
    if os.environ.get(variables.FORCED):
        return False
    try:
        return (run / RECORD_NAME).stat().st_mtime < (run / FINISHED).stat().st_mtime
    except FileNotFoundError:
        return True
