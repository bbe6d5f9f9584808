"""The decoders, one file each: they turn JPEG files into pixels on one of the decode paths.

docs/loading.md ("Add a decoder") lists the constants that they declare, which are read without
importing them, and what they define. No other decode path ever replaces the one that was asked for.
"""

import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from feedrate.config.settings import Decode, LoaderSettings
from feedrate.config.spec import DECODERS, Kind
from feedrate.core import plugins
from feedrate.core.errors import tell
from feedrate.devices.base import UnsupportedError

if TYPE_CHECKING:
    from feedrate.loading.decoders.cache import Store

Opened = TypeVar("Opened")


class Source(NamedTuple):
    """The rows that a decoder on the host reads."""

    paths: list[Path]
    side_px: int
    """Side of the square that it returns."""
    loader: LoaderSettings
    store: "Store | None"


def decoders(level: Decode, kind: Kind | None = None) -> list[str]:
    """The decoders of a decode path for a device kind, the first choice first; None: the host."""
    kinds, order = plugins.declared(DECODERS, "KINDS"), plugins.declared(DECODERS, "ORDER")
    found = [
        name
        for name, implemented in plugins.declared(DECODERS, "LEVEL").items()
        if implemented == level and (kind in kinds[name] if name in kinds else kind is None)
    ]
    return sorted(found, key=lambda name: (order.get(name, math.inf), name))


def first(names: list[str], open_one: Callable[[ModuleType], Opened]) -> Opened:
    """The result of `open_one` for the first decoder that has all it needs; prints which were
    skipped, and why. Raises UnsupportedError if all were."""
    reasons = []
    for name in names:
        try:
            opened = open_one(plugins.load(DECODERS, name))
        except UnsupportedError as error:
            reasons.append(str(error))
        except ImportError as error:
            reasons.append(f"the decoder {name} cannot be imported: {error}")
        else:
            for reason in reasons:
                tell("feedrate.loading", f"{reason}; {name} decodes instead")
            return opened
    raise UnsupportedError(" | ".join(reasons))


def transfer_of(level: Decode) -> str:
    """The type of the pixels that loaders send to the device, uint8 or float32."""
    return str(_declared(level, "TRANSFER", "uint8"))


def fetch_of(level: Decode) -> str:
    """Whether loaders make a "sample" or a "batch" at a time."""
    return str(_declared(level, "FETCH", "batch"))


def lacks(level: Decode) -> tuple[str, ...]:
    """The loader's stages that this decode path does not have."""
    return tuple(_declared(level, "LACKS", ()))


def _declared(level: Decode, constant: str, default: Any) -> Any:
    names = plugins.declared(DECODERS, "LEVEL")
    values = plugins.declared(DECODERS, constant)
    return next((values[n] for n, one in names.items() if one == level and n in values), default)
