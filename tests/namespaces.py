"""A PID namespace for each xdist worker, so that workers do not see each other's training jobs.

The package rejects a measurement if another training job runs on the host, and finds such jobs in
/proc. In its own namespace a worker sees only the processes that it has started, and the kernel
kills all of them when the worker ends. This file is also PID 1 of the namespace: it reaps orphans.

The package also rejects a measurement if the hypervisor gave much CPU time to others. On a shared
machine that happens at any time, so /proc/stat stands still in the namespace.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

UNSHARE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
AS_USER = (*UNSHARE, "--user", "--map-current-user")


def isolated_python() -> tuple[str, str]:
    """A command that starts Python in a new namespace; or "" and the reason why that fails."""
    if not shutil.which(UNSHARE[0]):
        return "", "no unshare on this machine (package util-linux)"
    options = UNSHARE if os.geteuid() == 0 else AS_USER
    command = [*options, sys.executable, __file__, sys.executable]
    tried = subprocess.run([*command, "-c", ""], capture_output=True, text=True, check=False)
    if tried.returncode:
        return "", tried.stderr.strip().splitlines()[-1]
    return shlex.join(command), ""


def freeze_stat() -> None:
    """Put a copy in the place of /proc/stat, if that is permitted."""
    with tempfile.NamedTemporaryFile() as copy:
        Path(copy.name).write_bytes(Path("/proc/stat").read_bytes())
        mount = ["mount", "--bind", copy.name, "/proc/stat"]
        subprocess.run(mount, capture_output=True, check=False)


def first_process(command: Sequence[str]) -> int:
    """Run a command and reap every process that ends, as PID 1 must; return the exit code."""
    signal.signal(signal.SIGINT, lambda *_: None)  # on Ctrl-C, pytest's main process ends workers
    started = subprocess.Popen(command)
    while True:
        pid, status = os.wait()
        if pid == started.pid:
            started.returncode = os.waitstatus_to_exitcode(status)
            return started.returncode if started.returncode >= 0 else 128 - started.returncode


if __name__ == "__main__":
    freeze_stat()
    sys.exit(first_process(sys.argv[1:]))
