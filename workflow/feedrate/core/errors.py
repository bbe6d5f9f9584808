"""Expected failures: a program reports them in one sentence on stderr, without a traceback."""

import errno
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote_plus

_ENDS = "(?:TOKEN|SECRET|PASSWORD|PASSWD|API_KEY|ACCESS_KEY)"
SECRET_NAME = re.compile(f"{_ENDS}$", re.IGNORECASE)
"""Environment variables whose values never reach a log, an event or a message."""
MASK = "***"
URL_PASSWORD = re.compile(r"://[^/@\s:]*:([^/@\s]+)@")
"""The password in an address, such as that of a tracker's server."""
URL_TOKEN = re.compile(rf"[?&][\w.-]*{_ENDS}=([^&#\s]{{8,}})", re.IGNORECASE)
"""A secret in the query of an address, such as `write_token` of trackio's server."""
_SHORTEST = 8
"""Shorter values may be ordinary words: passwords of addresses are masked only there."""

SENTENCE = re.compile(r"^feedrate(?: [\w-]+)?: (.+)$", re.MULTILINE)
"""A line in a job's log that `tell` printed; the group is its sentence."""

_FULL = (errno.ENOSPC, errno.EDQUOT)


class ExpectedError(Exception):
    """A failure that its message explains in one sentence; the program exits with `exit_code`."""

    exit_code = 1


class UsageError(ExpectedError):
    """A command line that cannot be carried out."""

    exit_code = 2


class LogError(ExpectedError):
    """Raw logs that lack required content; the message names the file and the line."""


class Masker:
    """Masks values of secret environment variables, and secrets in addresses that others hold."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        named = {
            value: name
            for name, value in environment.items()
            if SECRET_NAME.search(name) and not os.path.exists(value)  # noqa: PTH110
        }
        inside = {one: name for name, value in environment.items() for one in secrets_in(value)}
        self.everywhere = {v: n for v, n in (named | inside).items() if len(v) >= _SHORTEST}
        """The values that are masked wherever they stand, and the variables that have them."""
        longest_first = sorted(self.everywhere, key=len, reverse=True)
        forms = [re.escape(value) for value in longest_first]
        forms += [f"(?<=:){re.escape(one)}(?=@)" for one in sorted(inside.keys() - self.everywhere)]
        self._pattern = re.compile("|".join(forms)) if forms else None

    def __call__(self, text: str) -> str:
        """`text` without secrets."""
        return self._pattern.sub(MASK, text) if self._pattern else text


def secrets_in(text: str) -> set[str]:
    """The passwords and tokens in the addresses of `text`, as written and as programs read them."""
    found = {*URL_PASSWORD.findall(text), *URL_TOKEN.findall(text)}
    return found | {unquote_plus(secret) for secret in found}


def fail(program: str, why: object, exit_code: int = 1) -> int:
    """Print on stderr why `program` fails (a sentence or an exception); return the exit code."""
    tell(program, explain_os_error(why) if isinstance(why, OSError) else why)
    return exit_code


def tell(program: str, what: object) -> None:
    """Print `what` on stderr, without secrets, after the program's name, `feedrate …`."""
    print_error(f"{program}: {Masker()(str(what))}")


def print_error(line: str) -> None:
    """Print a line on stderr. Where that fails, as in a pipe whose reader has ended, it and all
    later lines are lost: words for a reader end no job."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def first_line(error: BaseException) -> str:
    """The first line of an error's message, for use in a sentence; its class without a message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def explain_os_error(error: OSError, folder: Path | None = None) -> str:
    """Explain a system error in one sentence; `folder` is named if the error names no file."""
    where = error.filename or folder
    if error.errno in _FULL:
        at = f" at {where}" if where else ""
        return (
            f"the disk is full{at}: free some space and run the same command again; "
            "nothing half-written was kept"
        )
    reason = (error.strerror or str(error)).lower() if error.errno else str(error)
    return f"{where}: {reason}" if where else reason
