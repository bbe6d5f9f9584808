"""How the data commands end: what a user can cause is one sentence and exit code 1."""

import errno
import sys
from collections.abc import Callable
from pathlib import Path

from feedrate.config.load import ConfigError
from feedrate.data.manifest import DataError

_FULL = (errno.ENOSPC, errno.EDQUOT)


def run_command(work: Callable[[], str], out: Path) -> int:
    """Do the work, which writes the folder of `out`, and print what it says; the exit code."""
    try:
        print(work())
    except (ConfigError, DataError) as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(explain_os_error(error, out.parent), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def explain_os_error(error: OSError, folder: Path) -> str:
    """One sentence for a full disk, a folder that may not be written and the like."""
    where = error.filename or folder
    if error.errno in _FULL:
        return (
            f"the disk is full at {where}: free some space and run the same command again; "
            "nothing half-written was kept"
        )
    return f"{where}: {(error.strerror or str(error)).lower()}"
