"""`devices: [detected]`: the entry of the registry that stands for what this machine has."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from feedrate.config.base import Strict
from feedrate.config.device import Device, JobResources, is_called
from feedrate.config.load import ConfigError
from feedrate.config.settings import Kind, Launcher

DETECTED = "detected"
"""The word among `devices` in config.yaml that asks for it."""

_LAST_COUNT = re.compile(r"(?<=:)\d+$")
"""The count at the end of a gres: `gpu:8`, `gpu:h100:8`."""


class Machine(Strict, kw_only=True):
    """The accelerators that a look at this machine found."""

    host: str
    kind: Kind | None = None
    models: list[str] = []
    """The model of each that jobs may use, as its driver names it."""
    remark: str = ""
    """Why there are none, or why they cannot be used; a sentence."""

    @classmethod
    def nowhere(cls) -> "Machine":
        """A machine that is not looked at."""
        return cls(host="this machine")


def resolve(
    names: Sequence[str], devices: Mapping[str, Device], machine: Machine, origin: str
) -> tuple[list[str], dict[str, Device]]:
    """`names` with an entry's name in place of `detected`, and the registry with that entry.

    Where the machine has another number of devices than the entry, that is an entry of its own,
    `h100-x1`, so that its results never stand for the registered ones. Raises ConfigError.
    """
    name, entry = _entry_of(machine, devices, f"{origin}: devices[{names.index(DETECTED)}]")
    resolved = dict.fromkeys(name if word == DETECTED else word for word in names)
    return list(resolved), {**devices, name: entry}


def _entry_of(machine: Machine, devices: Mapping[str, Device], origin: str) -> tuple[str, Device]:
    """The entry for a machine: a registered one, or its variant with another count."""
    known = ", ".join(devices)
    found = " and ".join(f"{n} x {model}" for model, n in Counter(machine.models).items())
    if machine.remark or not machine.models:
        remark = machine.remark or f"{machine.host} has no accelerator that can be used"
        raise ConfigError(
            f"{origin}: 'detected' is not possible here: {remark}; run this where the accelerators "
            f"are, or name entries of config/devices.yaml: {known}"
        )
    if len(set(machine.models)) > 1:
        raise ConfigError(
            f"{origin}: 'detected' is not possible on {machine.host}, which has {found}: a job's "
            f"devices must be alike; name an entry of config/devices.yaml instead: {known}"
        )
    model, count = machine.models[0], len(machine.models)
    matching = [
        name
        for name, entry in devices.items()
        if (entry.kind, bool(entry.model_pattern)) == (machine.kind, True)
        and is_called(model, entry.model_pattern or "")
    ]
    if not matching:
        raise ConfigError(
            f"{origin}: {machine.host} has {found}, and no entry of config/devices.yaml has a "
            "model_pattern for it; add one with the peaks of its own data sheet "
            "(config/README.md, Add a device)"
        )
    exact = [name for name in matching if devices[name].count == count]
    if exact:
        return exact[0], devices[exact[0]]
    return _variant(matching[0], devices, count)


def _variant(name: str, devices: Mapping[str, Device], count: int) -> tuple[str, Device]:
    """An entry with another count on one host: label, price, gres and launcher follow."""
    entry = devices[name]
    share = count / entry.count
    changes: dict[str, Any] = {
        "label": f"{entry.label} x{count}",
        "count": count,
        "nodes": 1,
        "launcher": _launcher(entry, count),
        "price_usd_per_hour": entry.price_usd_per_hour and entry.price_usd_per_hour * share,
        "job": JobResources(
            gres=entry.job.gres and _LAST_COUNT.sub(str(count), entry.job.gres),
            memory_gib=entry.job.memory_gib and entry.job.memory_gib * share * entry.nodes,
            constraint=entry.job.constraint,
        ),
        "variant_of": entry.variant_of or name,
    }
    variant = msgspec.structs.replace(entry, **changes)
    return f"{entry.variant_of or name}-x{count}", variant


def _launcher(entry: Device, count: int) -> Launcher | None:
    """What starts several processes on one host as the entry does; None: by the count."""
    return entry.launcher if count > 1 and entry.launcher in ("torchrun", "mpirun") else None
