"""The registry of loading paths: what `loader.decode` means on each kind of device."""

from collections.abc import Callable

from feedrate.config.settings import Kind, LoaderSettings
from feedrate.data.loading.device import DevicePath
from feedrate.data.loading.host import HostPath
from feedrate.data.loading.path import LoadingPath
from feedrate.devices.base import Adapter, UnsupportedError


def _gaudi(device: Adapter, loader: LoaderSettings) -> DevicePath:
    from feedrate.data.loading.gaudi import open_gaudi

    return open_gaudi(device, loader)


DEVICE_DECODERS: dict[Kind, Callable[[Adapter, LoaderSettings], DevicePath]] = {"hpu": _gaudi}
"""What opens `decode: device`, by kind; add a device decoder here. The software of one is imported
only where its kind is asked for."""


def open_path(device: Adapter, loader: LoaderSettings) -> LoadingPath:
    """The loading path of a run; what it needs beyond software starts with its first batch.

    Raises UnsupportedError for a path that this device, or the software on this host, does not
    have; another is never taken.
    """
    if loader.decode == "host":
        return HostPath(loader, pin_memory=loader.pin_memory and device.kind != "cpu")
    if device.kind not in DEVICE_DECODERS:
        why = "a cpu has no JPEG decoder"
        if device.kind != "cpu":
            why = f"not available yet on {device.kind}"
        raise UnsupportedError(f"loader.decode: device: {why}; use host")
    return DEVICE_DECODERS[device.kind](device, loader)


def check_decode(device: Adapter, loader: LoaderSettings) -> None:
    """Raise UnsupportedError where `open_path` would, before a run does anything slow."""
    open_path(device, loader)
