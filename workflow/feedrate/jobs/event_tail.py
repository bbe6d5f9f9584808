"""The events of a run that is still running."""

import os
from contextlib import suppress
from pathlib import Path

from feedrate.jobs.events import Event, decode


class EventTail:
    """Reads the events added to a file since the last call, without lines that are cut off."""

    def __init__(self, path: Path, last_bytes: int | None = None) -> None:
        """Begin at the file's first byte, or `last_bytes` before its end."""
        self._path, self._last_bytes = path, last_bytes
        self._offset = 0

    def read(self) -> list[Event]:
        """The events of complete lines; none while there is no file."""
        try:
            with self._path.open("rb") as stream:
                if self._last_bytes is not None:
                    end = stream.seek(0, os.SEEK_END)
                    self._offset, self._last_bytes = max(0, end - self._last_bytes), None
                stream.seek(self._offset)
                added = stream.read()
        except OSError:
            return []
        complete = added.rfind(b"\n") + 1
        self._offset += complete
        found = []
        for line in added[:complete].splitlines():
            with suppress(ValueError, RecursionError):
                if event := decode(line):
                    found.append(event)
        return found
