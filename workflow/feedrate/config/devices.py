"""The device registry's types: what a device is, can do, and reaches at best."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from feedrate.config.base import Count, Name, Positive, Strict
from feedrate.config.load import ConfigError
from feedrate.config.settings import Kind, Launcher, Software
from feedrate.core import plugins


class Peak(Strict, kw_only=True):
    """Peak matrix-multiply rate of one device (one accelerator, not the job)."""

    precision: Annotated[
        Name, Meta(description="fp32, bf16, fp16 or fp8: which settings it applies to.")
    ]
    datasheet_tflops: Annotated[
        Positive | None, Meta(description="Dense rate of the data sheet, TFLOP/s.")
    ] = None
    achievable_tflops: Annotated[
        Positive | None, Meta(description="Best rate that others measured, TFLOP/s.")
    ] = None
    source: Annotated[str, Meta(description="Where the numbers come from.", min_length=1)]


class JobResources(Strict, kw_only=True):
    """What a training job asks a cluster for, on each of its nodes; a profile may say otherwise."""

    gres: Annotated[
        str | None, Meta(description="Slurm's generic resource: gaudi:8, gpu:8, gpu:h100:8.")
    ] = None
    memory_gib: Annotated[
        Positive | None, Meta(description="Host memory; null: the cluster's default.")
    ] = None
    constraint: Annotated[
        str | None, Meta(description="Node features that Slurm is to look for.")
    ] = None


BETWEEN_DEVICES = ("ddp_options", "fsdp", "fsdp_fp16", "fsdp1")
"""Capabilities that mean nothing in a job of one device."""


def is_called(model: str, pattern: str) -> bool:
    """Whether `model`, the name that a device reports, is one of a `model_pattern`: all of it, as
    "NVIDIA H100" is the start of the names of unlike cards."""
    return re.fullmatch(pattern, model) is not None


class Device(Strict, kw_only=True):
    """One entry of config/devices.yaml."""

    label: Annotated[str, Meta(description="Name in tables and figures.", min_length=1)]
    kind: Annotated[Kind, Meta(description="Which kind of device it is.")]
    count: Annotated[Count, Meta(description="Devices in one training job (ranks).")] = 1
    capabilities: Annotated[
        list[Name], Meta(description="What it can do; a level may require one of these.")
    ]
    model_pattern: Annotated[
        str | None,
        Meta(description="Regular expression of the whole name that the device reports."),
    ] = None
    memory_gib: Annotated[Positive | None, Meta(description="Memory of one device, GiB.")] = None
    peaks: Annotated[list[Peak], Meta(description="Peak rates; empty: no MFU.")] = []
    power_w: Annotated[Positive | None, Meta(description="Rated power of one device, W.")] = None
    price_usd_per_hour: Annotated[
        Positive | None, Meta(description="Price of the whole job's devices, USD per hour.")
    ] = None
    launcher: Annotated[
        Launcher | None,
        Meta(
            description="What starts the job's processes (srun: with torchrun on every node); "
            "null: single for one device, torchrun on one node, else srun."
        ),
    ] = None
    nodes: Annotated[Count, Meta(description="Hosts that share the job's devices evenly.")] = 1
    software: Annotated[
        Software, Meta(description="Interpreter, modules, variables, container of the processes.")
    ] = Software()
    job: Annotated[JobResources, Meta(description="What a training job asks a cluster for.")] = (
        JobResources()
    )
    threads: Annotated[
        Count | None, Meta(description="CPU cores a job asks for; null: all of the host.")
    ] = None
    variant_of: Annotated[
        Name | None,
        Meta(
            description="An entry that this one is another count or software of: what a study "
            "adapts for that one counts here too."
        ),
    ] = None
    source: Annotated[str | None, Meta(description="Where the entry's facts come from.")] = None

    @property
    def able(self) -> list[Name]:
        """The capabilities, without those that a job of one device has no use for."""
        return [c for c in self.capabilities if self.count > 1 or c not in BETWEEN_DEVICES]


# `devices: [detected]`: the entry of the registry that stands for what this machine has.

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
    """The entry's launcher if it starts several processes on one host; None: by the count."""
    several = launcher_limit(entry.launcher, "MAX_PROCESSES") > 1
    on_one_host = launcher_limit(entry.launcher, "MAX_NODES") == 1
    return entry.launcher if count > 1 and several and on_one_host else None


def launcher_limit(launcher: Launcher | None, limit: str) -> float:
    """MAX_PROCESSES or MAX_NODES of a launcher; infinite if it declares none."""
    declared = plugins.declared("feedrate.devices.launchers", limit)
    return float(declared.get(launcher or "", math.inf))
