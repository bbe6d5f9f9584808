"""Counters of energy, by the device's own account: joules since some start that never changes.

A machine without a counter, or one that keeps it from us, is no fault: its energy is not known.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

Counter = Callable[[], float | None]
"""Joules so far; None where they cannot be read."""

POWERCAP = Path("/sys/class/powercap")
PACKAGE = "package"
"""What names of packages begin with; `psys`, the whole board, would count them twice."""
UJ, MJ = 1e-6, 1e-3
"""Micro- and millijoules, J."""


def unknown() -> None:
    """A counter that nobody has."""


class Packages:
    """The host's processor packages, as the kernel's powercap interface counts them (RAPL; Intel's,
    and AMD's from kernel 5.11 on). Memory and boards are not in it.

    A package's counter starts anew at its range, after minutes under load: read it once a minute.
    """

    def __init__(self, root: Path = POWERCAP) -> None:
        self._zones = [
            zone
            for zone in sorted(root.glob("intel-rapl:*"))
            if _text(zone / "name")[:7] == PACKAGE
        ]
        self._last_uj = [self._read(zone) for zone in self._zones]
        self._total_uj = 0

    def __call__(self) -> float | None:
        """Joules since this object was made; None where a package cannot be read, as by a user
        whom the kernel does not trust with it."""
        now_uj = [self._read(zone) for zone in self._zones]
        for zone, last, now in zip(self._zones, self._last_uj, now_uj, strict=True):
            if last is None or now is None:
                return None
            spent = now - last
            if spent < 0:
                spent += int(_text(zone / "max_energy_range_uj") or 0)
            self._total_uj += spent
        self._last_uj = now_uj
        return self._total_uj * UJ if self._zones else None

    @staticmethod
    def _read(zone: Path) -> int | None:
        text = _text(zone / "energy_uj")
        return int(text) if text.isdigit() else None


def of_gpu(uuid: str) -> Counter:
    """An NVIDIA GPU's counter, through its driver (package nvidia-ml-py)."""
    try:
        import pynvml
    except ImportError:
        return unknown

    def read(handle: Any) -> float:
        return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) * MJ

    def find() -> Any:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")

    return _guarded(find, read, pynvml.NVMLError)


def of_gaudi(index: int, devices: int) -> Counter:
    """The counter of Gaudi `index`, through its driver (package pyhlml of the Gaudi software).

    The library numbers cards in an order of its own: it tells nothing of a job that has only some
    of the host's, since it cannot be known which. `devices`: as many has the job here.
    """
    try:
        import pyhlml
    except (ImportError, OSError):
        return unknown

    def read(handle: Any) -> float:
        return float(pyhlml.hlmlDeviceGetTotalEnergyConsumption(handle)) * MJ

    def find() -> Any:
        pyhlml.hlmlInit()
        whole = pyhlml.hlmlDeviceGetCount() == devices
        return pyhlml.hlmlDeviceGetHandleByIndex(index) if whole else None

    return _guarded(find, read, Exception)  # the library has no class of its own for its errors


def _guarded(
    find: Callable[[], Any], read: Callable[[Any], float], error: type[Exception]
) -> Counter:
    """`read` of what `find` finds; where it finds nothing or cannot read it once, `unknown`."""
    try:
        handle = find()
        if handle is None:
            return unknown
        read(handle)
    except error:
        return unknown

    def counter() -> float | None:
        try:
            return read(handle)
        except error:
            return None

    return counter


def _text(path: Path) -> str:
    """A kernel file's text; empty where it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
