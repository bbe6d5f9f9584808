"""How the data commands end: what a user can cause is one sentence and exit code 1."""

import errno
import sys
from collections.abc import Callable

from feedrate.config.load import ConfigError
from feedrate.data.manifest import DataError

_FULL = (errno.ENOSPC, errno.EDQUOT)


def run_command(work: Callable[[], str]) -> int:
    """Do the work and print what it says; the exit code."""
    try:
        print(work())
    except (ConfigError, DataError) as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(explain_os_error(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def explain_os_error(error: OSError) -> str:
    """One sentence for a full disk, a folder that may not be written and the like."""
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in _FULL:
        return (
            f"the disk is full{where}: free some space and run the same command again; "
            "nothing half-written was kept"
        )
    return f"the system says: {(error.strerror or str(error)).lower()}{where}"
