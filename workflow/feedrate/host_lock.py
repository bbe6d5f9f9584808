"""One job at a time on a host that trains, scores or drains: two would measure each other."""

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

POLL_S = 0.5


def lock_path() -> Path:
    """The lock file of this user on this host."""
    return Path(tempfile.gettempdir()) / f"feedrate-{os.getuid()}.lock"


@contextlib.contextmanager
def host_lock(
    path: Path, tell: Callable[[str], None], check: Callable[[], None] = lambda: None
) -> Iterator[int]:
    """Hold the lock; wait for it where another job has it, telling so once.

    `check` is called at every look and may raise to give up. Yields the file descriptor: a process
    that inherits it holds the lock too, so that it is free only when all of a job have ended.
    """
    # No link is followed: the folder is shared with other users.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        told = False
        while not _take(descriptor):
            if not told:
                holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
                tell(f"waiting: another job of feedrate runs on this host (pid {holder})")
                told = True
            check()
            time.sleep(POLL_S)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
