"""How a program ends where a user can mend what is wrong: one sentence, and no traceback."""

import errno
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

# Which environment variables hold secrets, by their names.

SECRET_NAME = re.compile(r"(TOKEN|SECRET|PASSWORD|PASSWD|API_KEY|ACCESS_KEY)$", re.IGNORECASE)


# Tokens of the environment never reach a log, an event or a message.

MASK = "***"
_SHORTEST = 8
"""A shorter value is no token; masking it would blot out ordinary words."""


class Masker:
    """Replaces the values of secret environment variables in text."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        values = {
            value
            for name, value in environment.items()
            if SECRET_NAME.search(name) and len(value) >= _SHORTEST and not os.path.exists(value)  # noqa: PTH110
        }
        longest_first = sorted(values, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if values else None

    def __call__(self, text: str) -> str:
        """`text` without secrets."""
        return self._pattern.sub(MASK, text) if self._pattern else text


SENTENCE = re.compile(r"^feedrate[\w.]*: (.+)$", re.MULTILINE)
"""A line of ours in a job's log: the sentence is its group."""

_FULL = (errno.ENOSPC, errno.EDQUOT)


def fail(program: str, why: object, exit_code: int = 1) -> int:
    """Say on stderr why `program` ends, a sentence or an exception; the exit code."""
    tell(program, explain_os_error(why) if isinstance(why, OSError) else f"{why}")
    return exit_code


def tell(program: str, what: object) -> None:
    """Print a line of ours on stderr; `program` begins with feedrate. Tokens of the environment are
    masked."""
    print(f"{program}: {Masker()(str(what))}", file=sys.stderr)


def explain_os_error(error: OSError, folder: Path | None = None) -> str:
    """One sentence for a full disk, a folder that may not be written and the like; `folder` stands
    in where the error names no file."""
    where = error.filename or folder
    if error.errno in _FULL:
        at = f" at {where}" if where else ""
        return (
            f"the disk is full{at}: free some space and run the same command again; "
            "nothing half-written was kept"
        )
    reason = (error.strerror or str(error)).lower() if error.errno else str(error)
    return f"{where}: {reason}" if where else reason


class LogError(Exception):
    """A log that does not hold what it must; the message names the file and the line."""
