"""A worker that cannot end in order, as if NCCL held it: `failing_rank.py <mark> <worker's …>`.

A thread of its own never ends, and an exit in order leaves the file <mark>.
"""

import atexit
import sys
import threading
from pathlib import Path

from feedrate.cli import jobs

if __name__ == "__main__":
    atexit.register(Path(sys.argv[1]).touch)
    threading.Thread(target=threading.Event().wait, name="nccl").start()
    sys.exit(jobs.run("worker", sys.argv[2:]))
