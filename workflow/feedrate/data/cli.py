"""How the data commands end: what a user can cause is one sentence and exit code 1."""

from collections.abc import Callable
from pathlib import Path

from feedrate.config.load import ConfigError
from feedrate.data.manifest import DataError
from feedrate.endings import explain_os_error, fail


def run_command(program: str, work: Callable[[], str], out: Path) -> int:
    """Do the work of `program`, which writes the folder of `out`, and print what it says; the exit
    code."""
    try:
        print(work())
    except (ConfigError, DataError) as error:
        return fail(program, error)
    except OSError as error:
        return fail(program, explain_os_error(error, out.parent))
    except KeyboardInterrupt:
        return 130
    return 0
