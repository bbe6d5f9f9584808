"""Reading the rows where memory is short: an error, and never a process that waits or crashes."""

import subprocess
import sys

from feedrate.loading.dataset import read_split

SCRIPT = """
import gc, os, resource, sys, time
gc.disable()
from pathlib import Path
from feedrate.loading.dataset import read_split

now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
for spare_mib in range(90, 260, 20):
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_AS, (now + spare_mib * 2**20, -1))
        try:
            read_split(Path(sys.argv[1]), "train", "caption")
        except Exception:
            os._exit(3)
        os._exit(0)
    for _ in range(100):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.1)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        status = None
    print("hung" if status is None else os.waitstatus_to_exitcode(status))
gc.freeze()  # or the end takes as long as the imports
"""


def test_it_ends_whatever_memory_there_is(tiny_prepared):
    assert len(read_split(tiny_prepared, "train", "caption")[0]) == 24
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tiny_prepared)],
        check=True,
        capture_output=True,
        text=True,
        timeout=240,
    )
    ends = done.stdout.split()
    assert len(ends) == 9
    assert set(ends) <= {"0", "3"}, ends
    assert "0" in ends
