"""One process, started directly."""

from feedrate.config.spec import RunSpec
from feedrate.devices.launch import Parts

MAX_PROCESSES = 1
MAX_NODES = 1
DEFAULT_FOR = "process"


def command(_spec: RunSpec, python: str, module: list[str]) -> Parts:
    """The interpreter itself."""
    return Parts([], [python, "-m", *module])
