"""Expected failures, which a program reports in one sentence on stderr."""

import errno
import os
import re
import sys
from pathlib import Path

from feedrate.core.secrets import Masker

SENTENCE = re.compile(r"^feedrate(?: [\w-]+)?: (.+)$", re.MULTILINE)
"""A line in a job's log that `tell` printed; the group is its sentence."""


class ExpectedError(Exception):
    """A failure that its message explains in one sentence; the program exits with `exit_code`."""

    exit_code = 1


class UsageError(ExpectedError):
    """A command line that cannot be carried out."""

    exit_code = 2


class LogError(ExpectedError):
    """Raw logs that lack required content; the message names the file and the line."""


def fail(program: str, reason: object, exit_code: int = 1) -> int:
    """Print on stderr why `program` fails (a sentence or an exception); return the exit code."""
    tell(program, explain(reason))
    return exit_code


def tell(program: str, message: object) -> None:
    """Print `message` on stderr, without secrets, after the program's name, `feedrate …`."""
    print_error(f"{program}: {Masker()(str(message))}")


def print_error(line: str) -> None:
    """Print a line on stderr. Where that fails, it and all later lines are lost."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def first_line(error: BaseException) -> str:
    """The first line of an error's message, for use in a sentence; its class without a message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def explain(error: object, folder: Path | None = None) -> str:
    """An error in one sentence; `folder` is named if a system error names no file."""
    if not isinstance(error, OSError):
        return str(error)
    path = error.filename or folder
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        place = f" at {path}" if path else ""
        return f"the disk is full{place}: free some space and run the same command again"
    reason = (error.strerror or str(error)).lower() if error.errno else str(error)
    return f"{path}: {reason}" if path else reason
