"""A worker whose memory is bounded once its libraries are there: `out_of_memory.py <worker's …>`.

A bound before the imports would end them instead, and the allocator's own error is what is wanted.
"""

import resource
import sys
from pathlib import Path

import feedrate.jobs.train  # noqa: F401
from feedrate.cli import jobs

BUDGET_BYTES = 1 << 30

if __name__ == "__main__":
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + BUDGET_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    sys.exit(jobs.run("worker", sys.argv[1:]))
