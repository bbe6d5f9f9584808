"""A process of somebody else: `python neighbour.py CORES SHARE PERIOD_S` keeps cores busy.

It begins when a line comes on stdin, and ends when stdin closes. It imports nothing of the project.
"""

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path


class Neighbour:
    """Foreign processes, one on each of the host's last `cores`, as the laboratory starts them."""

    def __init__(self, cores: int, share: float, period_s: float) -> None:
        """They will be busy for `share` of every `period_s`, all at the same time."""
        chosen = sorted(os.sched_getaffinity(0))[-cores:]
        self._processes = [
            subprocess.Popen(
                [sys.executable, str(Path(__file__)), str(core), str(share), str(period_s)],
                stdin=subprocess.PIPE,
            )
            for core in chosen
        ]

    def begin(self) -> None:
        """Become busy."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.flush()

    def end(self) -> None:
        """End all processes. May be called again."""
        for process in self._processes:
            process.kill()
            process.wait()


def keep_busy(
    share: float, period_s: float, ended: Callable[[], bool], clock: Callable[[], float]
) -> None:
    """Compute for `share` of each period by the wall clock, until `ended`."""
    while not ended():
        start_s = clock()
        while clock() - start_s < share * period_s:
            pass
        time.sleep(max(0.0, start_s + period_s - clock()))


def main(core: int, share: float, period_s: float) -> None:
    """Wait for a line, then keep a core busy until stdin closes."""
    os.sched_setaffinity(0, {core})
    if sys.stdin.readline():
        keep_busy(share, period_s, _closed, time.monotonic)


def _closed() -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(ready) and not sys.stdin.readline()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
