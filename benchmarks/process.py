"""Timing of whole processes, interleaved, with the operating system's own accounting."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Usage:
    """One finished process: wall and CPU time in seconds, peak memory in MiB."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def run(command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> Usage:
    """Run a command to its end. Raises RuntimeError with its output if it fails."""
    log = folder / ".benchmark.log"
    with log.open("w+") as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **(env or {})}, stdout=output, stderr=output
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            raise RuntimeError(f"{' '.join(command)} failed:\n{output.read()[-3000:]}")
    return Usage(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
