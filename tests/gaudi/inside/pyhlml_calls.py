"""Our calls of the vendor's pyhlml, whose native library is a stand-in with the types of hlml.h.

Two cards, whose indices are not their modules. Prints the energy of each module, J, before and
after the library fails, and the names of the cards.
"""

import ctypes
import json
from types import SimpleNamespace
from typing import Any

import pyhlml
from pyhlml import hlml_lib

from feedrate.devices.kinds._habana import gaudi_counter

MODULES, ENERGY_MJ, NAME = (5, 2), (3_000, 7_500), b"HL-225"
SUCCESS, NOT_SUPPORTED = 0, 3
Uint, Ulonglong = ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ctypes.c_ulonglong)
broken: set[str] = set()


def native(name: str, *types: Any) -> Any:
    """Make a function of the library: it takes these types, and returns a status."""

    def wrap(function: Any) -> Any:
        def call(*arguments: Any) -> int:
            if name in broken:
                return NOT_SUPPORTED
            function(*arguments)
            return SUCCESS

        made = ctypes.CFUNCTYPE(ctypes.c_int, *types)(call)
        setattr(library, name, made)
        return made

    return wrap


library = SimpleNamespace()
native("hlml_init")(lambda: None)


@native("hlml_device_get_count", Uint)
def get_count(count: Any) -> None:
    count[0] = len(MODULES)


@native("hlml_device_get_handle_by_index", ctypes.c_uint, ctypes.POINTER(ctypes.c_void_p))
def get_handle(index: int, device: Any) -> None:
    device[0] = 0x1000 + index


@native("hlml_device_get_module_id", ctypes.c_void_p, Uint)
def get_module(device: int, module: Any) -> None:
    module[0] = MODULES[device - 0x1000]


@native("hlml_device_get_total_energy_consumption", ctypes.c_void_p, Ulonglong)
def get_energy(device: int, energy: Any) -> None:
    energy[0] = ENERGY_MJ[device - 0x1000]


@native("hlml_device_get_name", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint)
def get_name(device: int, name: int, length: int) -> None:
    ctypes.memmove(name, NAME + b"\0", min(length, len(NAME) + 1))


without = gaudi_counter("5")()  # no library is installed: the package raises its own error
hlml_lib.ctypes = SimpleNamespace(CDLL=lambda _path: library)
counters = {module: gaudi_counter(module) for module in ("5", "2", "0", None)}
joules = {str(module): counter() for module, counter in counters.items()}
cards = map(pyhlml.hlmlDeviceGetHandleByIndex, range(pyhlml.hlmlDeviceGetCount()))
names = [pyhlml.hlmlDeviceGetName(card).decode() for card in cards]
broken.add("hlml_device_get_total_energy_consumption")
lost = counters["5"]()
broken.add("hlml_init")
print(json.dumps([without, joules, names, lost, gaudi_counter("5")()]))
