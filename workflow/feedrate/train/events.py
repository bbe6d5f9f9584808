"""A run's events: one JSON object a line, written as they happen, read even from a torn file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from feedrate.paths import events_name

Event = dict[str, Any]


class EventLog:
    """Appends one rank's events; each is in the kernel's hands when `write` returns.

    A loss that is not a number is written as NaN (which JSON proper lacks and Python reads).
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self.rank = rank
        self._stream = (folder / events_name(rank)).open("a", encoding="utf-8")

    def write(self, event: str, **values: Any) -> None:
        """Write one event. Raises OSError where the disk is full."""
        line = json.dumps({"event": event, "rank": self.rank, **values}, ensure_ascii=False)
        self._stream.write(line + "\n")
        self._stream.flush()


class EventTail:
    """Reads what has been added to an events file since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> list[Event]:
        """Complete events added since the last call; none while there is no file."""
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                added = stream.read()
        except OSError:
            return []
        whole = added.rfind(b"\n") + 1
        self._offset += whole
        return list(_parse(added[:whole]))


def read_events(path: Path) -> list[Event]:
    """All complete events of a file; none where it is missing."""
    return EventTail(path).read()


def _parse(text: bytes) -> Iterator[Event]:
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:  # torn by a full disk or a kill
            continue
        if isinstance(event, dict):
            yield event
