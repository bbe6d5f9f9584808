"""The registry of loading paths: what `loader.decode` means on each kind of device."""

from collections.abc import Callable

from feedrate.config.settings import Kind, LoaderSettings
from feedrate.data.loading.device import DevicePath
from feedrate.data.loading.host import HostPath
from feedrate.data.loading.path import HELD_BATCHES, LoadingPath
from feedrate.devices.base import Adapter, UnsupportedError


def _gaudi(device: Adapter, loader: LoaderSettings) -> DevicePath:
    from feedrate.data.loading.gaudi import open_gaudi

    return open_gaudi(device, loader)


def _nvjpeg(device: Adapter, loader: LoaderSettings) -> DevicePath:
    from feedrate.data.loading.nvjpeg import open_nvjpeg

    return open_nvjpeg(device, loader)


DEVICE_DECODERS: dict[Kind, Callable[[Adapter, LoaderSettings], DevicePath]] = {
    "hpu": _gaudi,
    "cuda": _nvjpeg,
}
"""What opens `decode: device`, by kind; add a device decoder here. The software of one is imported
only where its kind is asked for."""


def open_path(
    device: Adapter, loader: LoaderSettings, *, held_batches: int = HELD_BATCHES
) -> LoadingPath:
    """The loading path of a run; what it needs beyond software starts with its first batch.

    A rank holds up to `held_batches` at a time. Raises UnsupportedError for a path that this
    device, or the software on this host, does not have; another is never taken.
    """
    if loader.decode == "reference" and loader.transfer == "uint8":
        raise UnsupportedError(
            "loader.transfer: uint8: decode: reference makes float32; use host or cache"
        )
    if loader.decode != "device":
        pin_memory = loader.pin_memory and device.kind != "cpu"
        return HostPath(loader, pin_memory=pin_memory, held_batches=held_batches)
    if device.kind not in DEVICE_DECODERS:
        raise UnsupportedError(
            f"loader.decode: device: a {device.kind} has no JPEG decoder; use host or cache"
        )
    return DEVICE_DECODERS[device.kind](device, loader)


def check_decode(device: Adapter, loader: LoaderSettings) -> None:
    """Raise UnsupportedError where `open_path` would, before a run does anything slow."""
    open_path(device, loader)
