"""Carries the job's output into its log, without secrets."""

import errno
import threading
from collections import deque
from pathlib import Path
from typing import IO

from feedrate.secrets import Masker

TAIL_LINES = 400


class LogPump:
    """Copies a pipe into a file, line by line, in a thread of its own.

    A full disk does not stop the reading, for then the job would hang on its own output: it sets
    `disk_full`, and the last lines stay in `tail`.
    """

    def __init__(self, source: IO[bytes], path: Path, mask: Masker) -> None:
        """Start to copy `source` to `path`."""
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.disk_full = False
        self._source, self._path, self._mask = source, path, mask
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self, timeout_s: float = 5.0) -> None:
        """Wait until all that was written has been copied."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        with self._path.open("wb", buffering=0) as log:
            for raw in self._source:
                line = self._mask(raw.decode(errors="replace"))
                self.tail.append(line.rstrip("\n"))
                self._write(log, line.encode())

    def _write(self, log: IO[bytes], line: bytes) -> None:
        try:
            log.write(line)
        except OSError as error:
            self.disk_full |= error.errno in (errno.ENOSPC, errno.EDQUOT)
