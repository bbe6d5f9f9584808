"""The accelerators of this machine, found without torch.

Each kind asks its driver's tool first and reads the kernel's files if the tool is absent. Only
accelerators that a process here may open count: in a container or a job, its share of the machine.
"""

import os
import platform
from collections.abc import Mapping

import msgspec

from feedrate.config.devices import Machine
from feedrate.core import plugins, variables
from feedrate.devices import host
from feedrate.devices.base import KINDS, adapter_class


def machine() -> Machine:
    """The accelerators of this machine; the main process looks once and passes them to its jobs."""
    known = os.environ.get(variables.DETECTED)
    if known is None:
        known = msgspec.json.encode(look()).decode()
        os.environ[variables.DETECTED] = known
    return msgspec.json.decode(known, type=Machine)


def look(environment: Mapping[str, str] = os.environ) -> Machine:
    """Look for accelerators that a process with this environment can use."""
    name = platform.node()
    found = {kind: adapter_class(kind).cards() for kind in plugins.names(KINDS)}
    found = {kind: cards for kind, cards in found.items() if cards}
    nouns = {kind: many for kind, (_, many) in plugins.declared(KINDS, "NOUNS").items()}
    if not found:
        return Machine(host=name, remark=_nothing(name))
    if len(found) > 1:
        both = " and ".join(nouns[kind] for kind in found)
        return Machine(host=name, remark=f"{name} has both {both}")
    ((kind, cards),) = found.items()
    if faults := [card.fault for card in cards if card.fault]:
        return Machine(host=name, remark=f"the {nouns[kind]} of {name} are {faults[0]}")
    variable = plugins.declared(KINDS, "VISIBLE")[kind]
    wanted = environment.get(variable)
    if wanted is not None:
        cards = adapter_class(kind).visible(cards, wanted)
    if not cards:
        return Machine(host=name, remark=f"{variable}={wanted} hides all accelerators of {name}")
    return Machine(host=name, kind=kind, models=[card.model for card in cards])


def _nothing(name: str) -> str:
    """Why nothing was found: no hardware, or hardware without a driver."""
    vendors = plugins.declared(KINDS, "PCI_VENDOR")
    present = {
        host.kernel_text(device / "vendor")
        for device in host.SYS.glob("bus/pci/devices/*")
        # Display controllers (03) and processing accelerators (12), not a GPU's sound.
        if host.kernel_text(device / "class")[:4] in ("0x03", "0x12")
    }
    idle = [
        one
        for kind, (one, _) in plugins.declared(KINDS, "NOUNS").items()
        if vendors[kind] in present
    ]
    if idle:
        return f"{name} has {' and '.join(idle)}, but no driver of it answers"
    return f"no accelerator was found on {name}"
