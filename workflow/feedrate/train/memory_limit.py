"""A limit on what a rank on a CPU may take, so that running out of memory is real without a GPU."""

import resource
from pathlib import Path

from feedrate.config.settings import RunSpec
from feedrate.devices.base import GIB, UnsupportedError


def limit_memory(spec: RunSpec) -> None:
    """Set the address space to what the process has now and `train.memory_gib` beyond.

    Call it when all libraries are loaded: they reserve far more addresses than they use. Processes
    started later have the limit too. Raises UnsupportedError on another kind than cpu.
    """
    allowed_gib = spec.settings.train.memory_gib
    if allowed_gib is None:
        return
    if spec.kind != "cpu":
        raise UnsupportedError(f"train.memory_gib: a limit for cpu, and this device is {spec.kind}")
    limit = _address_space() + int(allowed_gib * GIB)
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _address_space() -> int:
    """Bytes of addresses that this process has (proc(5): statm)."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()
