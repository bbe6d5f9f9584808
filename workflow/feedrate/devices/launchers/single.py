"""One process, started directly."""

from feedrate.config.spec import RunSpec

MAX_PROCESSES = 1
MAX_NODES = 1
DEFAULT_FOR = "process"


def command(_spec: RunSpec, python: str, module: list[str]) -> tuple[list[str], list[str]]:
    """The interpreter itself."""
    return [], [python, "-m", *module]
