"""The events of a run that is still running."""

from contextlib import suppress
from pathlib import Path

from feedrate.jobs.events import Event, decode


class EventTail:
    """Reads the events added to a file since the last call, without lines that are cut off."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0

    def read(self) -> list[Event]:
        """The events of complete lines; none while there is no file."""
        try:
            with self._path.open("rb") as stream:
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
