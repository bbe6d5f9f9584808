"""The energy of a timed window, without its pauses."""

from feedrate.devices.energy import Counter

LOOK_S = 60.0
"""A counter is read at least this often, since it may start anew."""


class WindowEnergy:
    """What a device takes while the window is open; the calls cost a reading each."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._start_j: float | None = None
        self._looked_s = 0.0
        self._total_j: float | None = 0.0

    def start(self, now_s: float) -> None:
        """The window opens, or goes on after a pause."""
        self._start_j, self._looked_s = self._counter(), now_s

    def stop(self) -> None:
        """The window closes, or pauses."""
        end_j = self._counter()
        if self._total_j is None or self._start_j is None or end_j is None:
            self._total_j = None
        else:
            self._total_j += end_j - self._start_j

    def look(self, now_s: float) -> None:
        """A step has ended."""
        if now_s - self._looked_s > LOOK_S:
            self._counter()
            self._looked_s = now_s

    @property
    def total_j(self) -> float | None:
        """Joules between starts and stops; None where a reading failed."""
        return self._total_j
