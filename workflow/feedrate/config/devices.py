"""config/devices.yaml: its types and checks, and the entry for the accelerators of this machine."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from feedrate.config.errors import Findings, Origin, numbered, raise_all
from feedrate.config.spec import LAUNCHERS, Kind, Launcher, Software
from feedrate.config.values import Count, Name, Positive, Strict, Text, about, load
from feedrate.core import plugins
from feedrate.core.errors import SECRET_NAME, secrets_in

Capability = Literal[
    # Precisions
    "fp32", "tf32", "bf16", "fp16", "half", "fp8",
    # Synchronisation and memory; the first five need several devices
    "ddp", "ddp_options", "fsdp", "fsdp_fp16", "fsdp1", "fast_ddp", "cpu_offload",
    # Data path
    "decode_device", "non_blocking",
    # Execution
    "compiled", "graphs", "lazy_mode", "pipelining", "autocast_lists", "flash", "stock_trainer",
    # Optimizers
    "fused_adam", "foreach_adam", "fused_clip_norm", "optimizer_8bit",
    # Speed
    "large_models",
    # Not in the registry: what a job of one device can do, and no other
    "one_device",
]  # fmt: skip
"""All capabilities; config/devices.yaml explains each. A new one is added here."""

BETWEEN_DEVICES = ("ddp_options", "fsdp", "fsdp_fp16", "fsdp1")
"""Capabilities that only a job of several devices can have."""


class Peak(Strict, kw_only=True):
    """Peak rate of one device (one accelerator, not the job) in matrix multiplication."""

    precision: Annotated[Name, about("Settings it applies to: fp32, tf32, bf16, fp16 or fp8.")]
    datasheet_tflops: Annotated[Positive | None, about("Dense, by the data sheet, TFLOP/s.")] = None
    achievable_tflops: Annotated[Positive | None, about("Best measured elsewhere, TFLOP/s.")] = None
    source: Annotated[Text, about("Source of the numbers.")]


class JobResources(Strict, kw_only=True):
    """Requests of a training job to a cluster, for each of its nodes; a profile overrides them."""

    gres: Annotated[str | None, about("Slurm's generic resource: gpu:8, gpu:h100:8.")] = None
    memory_gib: Annotated[Positive | None, about("Host memory; null: cluster's default.")] = None
    constraint: Annotated[str | None, about("Node features that Slurm requires.")] = None


class Device(Strict, kw_only=True):
    """One entry of config/devices.yaml."""

    label: Annotated[Text, about("Name in tables and figures.")]
    kind: Annotated[Kind, about("The adapter that drives it: cpu, cuda or hpu.")]
    count: Annotated[Count, about("Devices in one training job (ranks).")] = 1
    capabilities: Annotated[list[Capability], about("What it can do; a level may require one.")]
    model_pattern: Annotated[str | None, about("Regular expression of the reported name.")] = None
    memory_gib: Annotated[Positive | None, about("Memory of one device, GiB.")] = None
    peaks: Annotated[list[Peak], about("Peak rates; empty: no MFU.")] = []
    power_w: Annotated[Positive | None, about("Rated power of one device, W.")] = None
    price_usd_per_hour: Annotated[Positive | None, about("Price of all devices of a job.")] = None
    launcher: Annotated[
        Launcher | None,
        about(
            "single, torchrun, mpirun or srun (with torchrun on every node); null: single for one "
            "device, torchrun on one node, else srun."
        ),
    ] = None
    nodes: Annotated[Count, about("Hosts that share the job's devices evenly.")] = 1
    software: Annotated[Software, about("The software of its processes.")] = Software()
    job: Annotated[JobResources, about("Requests of a job to a cluster.")] = JobResources()
    threads: Annotated[Count | None, about("CPU cores that a job requests; null: all.")] = None
    variant_of: Annotated[
        Name | None,
        about("The entry that it varies in count or software; a study's changes for it apply too."),
    ] = None
    source: Annotated[str | None, about("Source of the entry's facts.")] = None

    @property
    def able(self) -> list[str]:
        """The capabilities of its jobs."""
        alone = [c for c in self.capabilities if c not in BETWEEN_DEVICES]
        return [*self.capabilities] if self.count > 1 else [*alone, "one_device"]


def is_called(model: str, pattern: str) -> bool:
    """Whether a `model_pattern` matches the whole name `model` that a device reports: names of
    different cards begin with "NVIDIA H100"."""
    return re.fullmatch(pattern, model) is not None


DETECTED = "detected"
"""The word for the accelerators of this machine among `devices` in config.yaml."""


def check_devices(origin: str, devices: Mapping[str, Device]) -> list[str]:
    """Check each entry of the device registry."""
    found = Findings(origin)
    for name, device in devices.items():
        found.unique(numbered(f"{name}.capabilities[{{}}]", device.capabilities))
        precisions = [peak.precision for peak in device.peaks]
        found.unique(numbered(f"{name}.peaks[{{}}].precision", precisions))
        if name == DETECTED:
            reserved = "this name is reserved for the accelerators of a machine; choose another"
            found.say(name, reserved)
        if device.variant_of is not None:
            found.known(f"{name}.variant_of", device.variant_of, devices, "entries")
        for key, text in _device_faults(device):
            found.say(f"{name}.{key}", text)
        found.path(f"{name}.software.python", device.software.python)
        found.path(f"{name}.software.container", device.software.container)
    return found


def _device_faults(device: Device) -> Iterator[tuple[str, str]]:
    """The keys of an entry whose values do not work, with the reason."""
    try:
        re.compile(device.model_pattern or "")
    except re.error as error:
        yield "model_pattern", f"{device.model_pattern!r} is not a regular expression ({error})"
    for variable, value in device.software.environment.items():
        key = f"software.environment.{variable}"
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
            yield key, "an environment variable cannot have this name"
        elif SECRET_NAME.search(variable) or secrets_in(value):
            yield key, "a secret would appear in every record; set it where snakemake is started"
    starts = f"{device.launcher!r} starts"
    if device.count > (most := launcher_limit(device.launcher, "MAX_PROCESSES")):
        yield "launcher", f"{starts} at most {most:g} process, but count is {device.count}"
    if device.count % device.nodes:
        yield "nodes", f"{device.nodes} nodes cannot share {device.count} devices evenly"
    if device.nodes > (most := launcher_limit(device.launcher, "MAX_NODES")):
        use = f"but nodes is {device.nodes}; use {default_launcher('nodes')}"
        yield "launcher", f"{starts} processes on at most {most:g} node, {use}"


def launcher_limit(launcher: Launcher | None, limit: str) -> float:
    """MAX_PROCESSES or MAX_NODES of a launcher; infinite if it declares none."""
    return float(plugins.declared(LAUNCHERS, limit).get(launcher or "", math.inf))


@cache
def default_launcher(jobs: Literal["process", "processes", "nodes"]) -> Launcher:
    """The launcher that declares these `jobs` as DEFAULT_FOR (see devices/launch.py)."""
    declared = plugins.declared(LAUNCHERS, "DEFAULT_FOR")
    return next(name for name, default_for in declared.items() if default_for == jobs)


class Machine(Strict, kw_only=True):
    """The accelerators found on a machine."""

    host: str
    kind: Kind | None = None
    models: list[str] = []
    """The model of each that jobs may use, as its driver names it."""
    remark: str = ""
    """A sentence that says why there are none, or why they cannot be used."""


def read_devices(root: Path, names: Iterable[str]) -> dict[str, Device]:
    """The registry under `root`, and an entry for each of `names` that is a registered name with
    another number of devices on one host: `h100-x1`. Raises ConfigError."""
    origin = "config/devices.yaml"
    devices = load(root / origin, dict[Name, Device], origin)
    raise_all(check_devices(origin, devices))
    made = dict(devices)
    for name in names:
        base, _, count = name.rpartition("-x")
        if name not in devices and base in devices and re.fullmatch("[1-9][0-9]*", count):
            made[name] = variant(base, devices, int(count))[1]
    return made


def with_detected(
    names: Sequence[str], devices: Mapping[str, Device], machine: Machine, origin: Origin
) -> tuple[list[str], dict[str, Device]]:
    """`names` with the machine's entry in place of `detected`, and the registry with that entry. A
    machine with another number of devices than the registered entry gets an entry of its own,
    `h100-x1`, so that its results never count as those of the registered entry. Raises ConfigError
    if no entry fits."""
    found, count = Findings(origin), len(machine.models)
    model = machine.models[0] if machine.models else ""
    of_kind = {name: entry for name, entry in devices.items() if entry.kind == machine.kind}
    patterns = {n: entry.model_pattern for n, entry in of_kind.items() if entry.model_pattern}
    matching = [name for name, pattern in patterns.items() if is_called(model, pattern)]
    if fault := _detection_fault(machine, devices, matching):
        found.say(f"devices[{names.index(DETECTED)}]", fault)
    raise_all(found)
    exact = [name for name in matching if devices[name].count == count]
    name, entry = (exact[0], devices[exact[0]]) if exact else variant(matching[0], devices, count)
    chosen = dict.fromkeys(name if word == DETECTED else word for word in names)
    return list(chosen), {**devices, name: entry}


def _detection_fault(
    machine: Machine, devices: Mapping[str, Device], matching: Sequence[str]
) -> str:
    """The reason why no entry fits the machine; empty if `matching` names one."""
    instead = f"name entries of config/devices.yaml: {', '.join(devices)}"
    found = " and ".join(f"{n} x {model}" for model, n in Counter(machine.models).items())
    if machine.remark or not machine.models:
        remark = machine.remark or f"{machine.host} has no accelerator that can be used"
        where = "run this where the accelerators are"
        return f"'detected' is not possible here: {remark}; {where}, or {instead}"
    if len(set(machine.models)) > 1:
        why = f"{machine.host} has {found}, and the devices of a job must be of one model"
        return f"'detected' is not possible: {why}; {instead}"
    if not matching:
        missing = "no entry of config/devices.yaml has a model_pattern for it"
        add = "add one with the peaks of its own data sheet (config/README.md, Add a device)"
        return f"{machine.host} has {found}, and {missing}; {add}"
    return ""


def variant(name: str, devices: Mapping[str, Device], count: int) -> tuple[str, Device]:
    """The name and values of an entry for another count of devices on one host."""
    entry = devices[name]
    share = count / entry.count
    processes = launcher_limit(entry.launcher, "MAX_PROCESSES")
    nodes = launcher_limit(entry.launcher, "MAX_NODES")
    job, base = entry.job, entry.variant_of or name
    made = msgspec.structs.replace(
        entry,
        label=f"{entry.label} x{count}",
        count=count,
        nodes=1,
        launcher=entry.launcher if count > 1 and processes > 1 and nodes == 1 else None,
        price_usd_per_hour=entry.price_usd_per_hour and entry.price_usd_per_hour * share,
        job=msgspec.structs.replace(
            job,
            gres=job.gres and re.sub(r"(?<=:)\d+$", str(count), job.gres),  # gpu:8, gpu:h100:8
            memory_gib=job.memory_gib and job.memory_gib * share * entry.nodes,
        ),
        variant_of=base,
    )
    return f"{base}-x{count}", made
