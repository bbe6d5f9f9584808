"""A result that is there already: of a job that another took over from, or did not know of."""

import json
import os
from pathlib import Path
from typing import Any

from feedrate import variables
from feedrate.paths import LOG_NAME, RECORD_NAME
from feedrate.train.holder import Identity
from feedrate.train.workspace import FINISHED, restore


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
