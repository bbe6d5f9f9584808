"""The decoders, one file each, from JPEG files to pixels; docs/loading.md says what they define."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from feedrate.config.settings import Decode, LoaderSettings
from feedrate.config.spec import DECODERS, Kind
from feedrate.core import plugins

if TYPE_CHECKING:
    from feedrate.loading.decoders.cache import Store


class Source(NamedTuple):
    """The rows that a decoder on the host reads."""

    paths: list[Path]
    side_px: int  # side of the square that it returns
    loader: LoaderSettings
    store: "Store | None"


def decoder_of(level: Decode, kind: Kind | None = None) -> str | None:
    """The decoder of a decode path for a kind of device, or (None) for the host."""
    kinds = plugins.declared(DECODERS, "KINDS")
    for name, implemented in plugins.declared(DECODERS, "LEVEL").items():
        if implemented == level and (kind in kinds[name] if name in kinds else kind is None):
            return name
    return None


DEFAULTS: dict[str, Any] = {
    "TRANSFER": "uint8",  # the type of the pixels that loaders send to the device, or float32
    "FETCH": "batch",  # what loaders make at a time, or "sample"
    "LACKS": (),  # the loader's stages that this decode path does not have
}


def constant_of(level: Decode, name: str) -> Any:
    """A constant of the decoder of a decode path, or its default."""
    values = plugins.declared(DECODERS, name)
    for decoder, implemented in plugins.declared(DECODERS, "LEVEL").items():
        if implemented == level and decoder in values:
            return values[decoder]
    return DEFAULTS[name]
